"""The transport to a server in a sandbox: messages as lines, carried by a background process. Needs the SDK."""

from __future__ import annotations

import asyncio
from types import TracebackType

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.sandbox_process import BackgroundProcess, ProcessDied
from agentenv.errors import SandboxFault
from agentenv.toolkit.mcp.lines import Flood, ServerOutput

_WAITING_MESSAGES = 64
"""Messages that wait to be taken by the server, so that cancelling a call never waits for one that reads nothing."""
_THREAD_ABOVE_BYTES = 1 << 18
_ENDING_S = 1.0
"""From the end of a server's output to its own end."""
_NO_DEADLINE = Deadline("an MCP server's connection")

Received = SessionMessage | Exception


class ProcessTransport:
    """The two ends of a connection for the SDK, and `carry`, which moves messages between them and the process."""

    def __init__(self, process: BackgroundProcess, output: ServerOutput) -> None:
        self.why = ""
        """Why the connection ended; empty while it stands."""
        self.fault: SandboxFault | None = None
        """Where it was the sandbox that gave way."""
        self._process = process
        self._output = output
        self._received: MemoryObjectSendStream[Received]
        self._to_client: MemoryObjectReceiveStream[Received]
        self._to_server: MemoryObjectSendStream[SessionMessage]
        self._to_send: MemoryObjectReceiveStream[SessionMessage]
        self._received, self._to_client = anyio.create_memory_object_stream[Received](0)
        self._to_server, self._to_send = anyio.create_memory_object_stream[SessionMessage](_WAITING_MESSAGES)

    async def __aenter__(self) -> tuple[MemoryObjectReceiveStream[Received], MemoryObjectSendStream[SessionMessage]]:
        return self._to_client, self._to_server

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self._received, self._to_client, self._to_server, self._to_send):
            stream.close()

    async def carry(self) -> None:
        """Carry messages both ways until the server's output ends; then everybody who waits for an answer is told.

        Raises:
            SandboxFault: The sandbox is gone.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._write)
            try:
                await self._read()
            finally:
                self._received.close()
            group.cancel_scope.cancel()

    async def _read(self) -> None:
        try:
            while (piece := await self._process.read(_NO_DEADLINE)) is not None:
                stream, data = piece
                if stream == "err":
                    self._output.error(data)
                    continue
                for line in self._output.lines(data):
                    await self._receive(line)
        except Flood as flood:
            self.why = f"{flood}, and was stopped"
            return
        except SandboxFault as fault:
            self.fault = fault
            raise
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the client has left
        try:
            self.why = f"it ended with exit code {await self._process.wait(Deadline.after(_ENDING_S, 'its ending'))}"
        except DeadlineReached:
            self.why = "it closed its output"

    async def _receive(self, line: bytes) -> None:
        try:
            if len(line) > _THREAD_ABOVE_BYTES:
                message = await asyncio.to_thread(_parsed, line)
            else:
                message = _parsed(line)
        except (ValidationError, RecursionError, UnicodeDecodeError):
            self._output.odd(line)
            return
        await self._received.send(SessionMessage(message))

    async def _write(self) -> None:
        try:
            async for item in self._to_send:
                self._output.asked()
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8", "replace")
                await self._process.write(line + b"\n", _NO_DEADLINE)
        except ProcessDied:
            return  # what it wrote before it died is still read, and then how it ended


def _parsed(line: bytes) -> mcp_types.JSONRPCMessage:
    return mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
