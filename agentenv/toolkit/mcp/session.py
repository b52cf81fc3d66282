"""One connection to one MCP server, owned by a task of its own. Needs the SDK.

The SDK's client must be entered and left by one task, while calls come from whichever task runs a tool: so a task
keeps the client, and everybody else asks through it. The SDK ties answers to questions by id, drops those that come
late, and tells the server of calls that were given up (``notifications/cancelled``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from importlib.metadata import version
from typing import Any

import anyio
import httpx2
import mcp_types
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.session import IncomingMessage
from pydantic import ValidationError

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.lifetime import AsyncResource, finish, first_of
from agentenv.core.sandbox import Sandbox
from agentenv.core.sandbox_process import BackgroundProcess
from agentenv.errors import SandboxFault, ended
from agentenv.toolkit.mcp.description import MOST_TOOL_BYTES, MOST_TOOLS, DescribedTool, Description
from agentenv.toolkit.mcp.http import http_client, http_transport
from agentenv.toolkit.mcp.lines import ServerOutput
from agentenv.toolkit.mcp.servers import Address, HttpAddress, StdioAddress
from agentenv.toolkit.mcp.stdio import ProcessTransport

_MOST_LIST_BYTES = MOST_TOOLS * MOST_TOOL_BYTES
"""Of all pages together: they are held until the last one has come."""
_CLOSING_S = 5.0
_LEAVING_S = 1.0
"""For a server to end by itself once its stdin is closed."""


class Unreachable(Exception):
    """There is no connection, or no longer; the text says why, and what the server wrote."""


class Session(AsyncResource):
    """A connection, from `open` until it is lost or closed."""

    def __init__(self, name: str, address: Address, sandbox: Sandbox | None) -> None:
        self.tools_changed = False
        """Whether the server said that its tools are others now."""
        self._name = name
        self._address = address
        self._sandbox = sandbox
        self._output = ServerOutput()
        self._opened = asyncio.Event()
        self._leave = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._transport: ProcessTransport | None = None
        self._why = ""

    async def open(self, deadline: Deadline) -> None:
        """Start the server, or reach it, and agree on the protocol.

        Raises:
            Unreachable: It did not start, or said something else.
            ConfigError: A header's value is not set.
            SandboxFault: The sandbox is gone.
            DeadlineReached: It took too long; it is closed.
        """
        if isinstance(self._address, HttpAddress):
            owning = self._own_http(http_client(self._address), self._address)
        else:
            owning = self._own_process(self._address, deadline)
        self._owner = asyncio.ensure_future(self._noted(owning))
        try:
            async with deadline.enforce():
                await self._opened.wait()
        except BaseException:
            await self.aclose()
            raise
        if self._client is None:
            await self.aclose()
            raise self._gone()

    @property
    def lost(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._client is None or bool(self._why or (self._transport is not None and self._transport.why))

    def told(self) -> str:
        """Say what the server wrote beside its messages; empty if nothing."""
        return self._output.told()

    async def describe(self) -> Description:
        """Ask for the server's tools, all pages.

        Raises:
            Unreachable: It is gone, or answered with what is no list.
            SandboxFault: The sandbox is gone.
        """
        client = self._asked()
        try:
            tools = await self._tools(client)
        except (MCPError, ValidationError) as error:
            raise self._broken(error) from error
        info = client.server_info
        return Description(
            server=info.name if info else "",
            version=info.version if info else "",
            protocol=client.protocol_version,
            tools=tuple(map(_described, tools)),
        )

    async def call(self, tool: str, arguments: dict[str, Any]) -> mcp_types.CallToolResult:
        """Call a tool; cancelling this tells the server so.

        Raises:
            MCPError: The server answered with an error of the protocol.
            Unreachable: It is gone, or its answer is none.
            SandboxFault: The sandbox is gone.
        """
        client = self._asked()
        try:
            return await client.call_tool(tool, arguments)
        except MCPError as error:
            if self.lost or error.code in self._losing:
                raise self._gone(error) from error
            raise
        except (ValidationError, RuntimeError) as error:  # RuntimeError: a kind of result that no call has
            raise self._broken(error) from error

    async def aclose(self) -> None:
        """End the connection, and a server in the sandbox with it."""
        self._leave.set()
        owner = self._owner
        if owner is not None and not owner.done() and not await finish(asyncio.wait([owner]), _CLOSING_S):
            owner.cancel()
            await finish(asyncio.wait([owner]), _CLOSING_S)

    @property
    def _losing(self) -> tuple[int, ...]:
        """Codes by which the SDK says that there is no connection; over HTTP a session that ended is one, too."""
        if isinstance(self._address, HttpAddress):
            return (mcp_types.CONNECTION_CLOSED, mcp_types.INVALID_REQUEST)
        return (mcp_types.CONNECTION_CLOSED,)

    async def _noted(self, owning: Coroutine[Any, Any, None]) -> None:
        """Hold the client until somebody closes; what goes wrong is kept for whoever asks."""
        try:
            await owning
        except BaseExceptionGroup as errors:
            self._why = self._why or _said(first_of(errors))
        except Exception as error:  # noqa: BLE001 - the owner's boundary: told to whoever asks
            self._why = self._why or _said(error)
        finally:
            self._client = None
            self._opened.set()

    async def _own_http(self, http: httpx2.AsyncClient, address: HttpAddress) -> None:
        async with http:
            await self._hold(self._client_over(http_transport(address, http)))

    async def _own_process(self, address: StdioAddress, deadline: Deadline) -> None:
        assert self._sandbox is not None, "a server over stdio is only opened with a sandbox"
        argv, env = address.argv(self._name), address.environment(self._name)
        process = await self._sandbox.spawn(argv, deadline=deadline, env=env)
        self._transport = transport = ProcessTransport(process, self._output)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(transport.carry)
                await self._hold(self._client_over(transport))
                group.cancel_scope.cancel()
        finally:
            await finish(process.aclose() if transport.why else _end(process), _CLOSING_S)

    def _client_over(self, transport: Transport) -> Client:
        us = mcp_types.Implementation(name="agentenv", version=version("agentenv"))
        return Client(transport, cache=None, client_info=us, message_handler=self._heard)

    async def _hold(self, client: Client) -> None:
        async with client:
            # The SDK would match what a tool returns with patterns that the server lists, on our loop and without end.
            client.session.validate_tool_result = _as_it_is
            self._client = client
            self._opened.set()
            await self._leave.wait()

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.tools_changed = True

    async def _tools(self, client: Client) -> list[mcp_types.Tool]:
        tools: list[mcp_types.Tool] = []
        cursor: str | None = None
        size = 0
        for _ in range(MOST_TOOLS):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            size += await asyncio.to_thread(_size, page)
            if size > _MOST_LIST_BYTES:
                raise Unreachable(f"its list of tools takes more than {_MOST_LIST_BYTES:,} bytes")
            cursor = page.next_cursor
            if not cursor:
                return tools
        raise Unreachable(f"its list of tools has no end: {MOST_TOOLS} pages were read, {len(tools)} tools")

    def _asked(self) -> Client:
        if self._client is None or self.lost:
            raise self._gone()
        return self._client

    def _broken(self, error: Exception) -> Exception:
        if self.lost:
            return self._gone(error)
        return Unreachable(self._with_output(f"its answer cannot be used: {_said(error)}"))

    def _gone(self, error: Exception | None = None) -> Exception:
        """Make the exception that says why nothing can be asked, from now on."""
        transport = self._transport
        if transport is not None and transport.fault is not None:
            return transport.fault
        told = _said(error) if error is not None else "the connection is closed"
        self._why = (transport.why if transport is not None else "") or self._why or told
        return Unreachable(self._with_output(self._why))

    def _with_output(self, why: str) -> str:
        told = self.told()
        return f"{ended(why)}\n{told}" if told else why


async def _as_it_is(name: str, result: mcp_types.CallToolResult) -> None:
    """Let a result pass: `calling` holds it to what its server says that its results are."""


def _size(page: mcp_types.ListToolsResult) -> int:
    return len(page.model_dump_json())


async def _end(process: BackgroundProcess) -> None:
    """Let a server end by itself, as the protocol has it, and kill it if it does not."""
    try:
        await process.close_stdin()
        deadline = Deadline.after(_LEAVING_S, "an MCP server's leaving")
        while await process.read(deadline) is not None:
            pass
        await process.wait(deadline)
    except (DeadlineReached, SandboxFault):
        pass
    finally:
        await process.aclose()


def _described(tool: mcp_types.Tool) -> DescribedTool:
    hints = tool.annotations
    return DescribedTool(
        name=tool.name,
        description=tool.description or tool.title or "",
        parameters={"type": "object", "properties": {}, **tool.input_schema},
        output=tool.output_schema,
        parallel=bool(hints is not None and (hints.read_only_hint or hints.idempotent_hint)),
    )


def _said(error: BaseException) -> str:
    """Give an exception's text on one line or a few, never the whole of what was received."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the message'}: {first['msg']}"[:300]
    if isinstance(error, MCPError):
        return str(error)[:300]
    return f"{type(error).__name__}: {error}"[:300].rstrip(": ")
