"""A sandbox as the contract has it, spoken to through its supervisor. The same for every launcher."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeVar

from agentenv.core.blobs import BlobSink, BlobSource
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.lifetime import AsyncResource, finish
from agentenv.core.sandbox import Execution, FileEntry, NetworkState, ResourceUse, Sandbox, SandboxLimits, SnapshotLimit
from agentenv.core.sandbox_process import BackgroundProcess, SandboxProcess
from agentenv.errors import SandboxFault
from agentenv.records.messages import Spill
from agentenv.sandboxes.background_process import SupervisedBackground
from agentenv.sandboxes.closing import end_of
from agentenv.sandboxes.collecting import Collecting, Snapshotting, file_name
from agentenv.sandboxes.connection import Answer, Connection, DataHandler
from agentenv.sandboxes.egress import EgressProxy
from agentenv.sandboxes.egress_link import EgressLink
from agentenv.sandboxes.kept_process import SupervisedProcess
from agentenv.sandboxes.launching import MemoryUse
from agentenv.sandboxes.network import measure_network
from agentenv.sandboxes.spilling import Spilling
from agentenv.sandboxes.supervisor.frames import number, texts

if TYPE_CHECKING:
    from agentenv.sandboxes.supervisor.frames import Value

T = TypeVar("T")

_log = logging.getLogger(__name__)

_END_S = 6.0
"""After a command's timeout: how long its supervisor may take to report, before the sandbox is given up as stuck."""
_ANSWER_S = 10.0
"""For what a supervisor does at once."""
_REACH_MS = 10_000
"""For trying what can be reached."""
_FILE_S = 60.0
"""For one operation on files."""
_CLOSE_S = 30.0
"""For closing; removing a workspace of a million files takes its time."""
_FOREVER_S = 1e9
_MAX_STDIN = 32 << 20
_LEAST_MEMORY = 128 << 20
"""Of the limit per process, which the supervisor is under as well."""


class SupervisedSandbox(Sandbox):
    """One lease."""

    def __init__(
        self,
        *,
        connection: Connection,
        environment: Mapping[str, str],
        memory: Callable[[], MemoryUse | None],
        write_labels: Callable[[Mapping[str, str]], None],
        release: Callable[[], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._environment = environment
        self._memory = memory
        self._write_labels = write_labels
        self._release = release
        self._egress: EgressLink | None = None
        self._proxy_port = 0
        self._closing: asyncio.Task[None] | None = None

    async def set_up(self, workspace: str, limits: SandboxLimits) -> None:
        """Tell the supervisor its limits; it answers when it can serve.

        Raises:
            SandboxFault: It cannot work within them (permanent), or is gone.
            OSError: The kernel lacks something.
        """
        if limits.memory_bytes < _LEAST_MEMORY:
            raise SandboxFault.permanent(
                f"limits.memory_bytes is {limits.memory_bytes:,}: a sandbox needs {_LEAST_MEMORY:,} at least"
            )
        await self._connection.ask(
            "setup",
            {
                "workspace": workspace.encode(),
                "memory": limits.memory_bytes,
                "cpu_s": max(1, round(limits.cpu_s)),
                "file_bytes": limits.file_bytes,
                "open_files": limits.open_files,
                "processes": limits.processes,
                "output_bytes": limits.output_bytes,
                "workspace_files": 0 if limits.workspace_bytes is None else limits.workspace_files,
                "env": _pairs(self._environment),
            },
        )

    async def open_network(self, proxy: EgressProxy) -> None:
        """Let commands reach a proxy, and name it in their environment.

        Raises:
            SandboxFault: The sandbox is gone.
            OSError: There is no loopback inside.
        """
        self._egress = EgressLink(self._connection, proxy)
        self._proxy_port = await self._egress.open()

    async def run(
        self,
        command: Sequence[str] | str,
        *,
        deadline: Deadline,
        timeout_s: float,
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        blobs: BlobSink | None = None,
    ) -> Execution:
        if len(stdin) > _MAX_STDIN:
            raise ValueError(f"stdin of {len(stdin)} bytes is over {_MAX_STDIN}: write it to a file of the workspace")
        request: dict[str, Value] = {
            "argv": _argv(command),
            "cwd": _raw(cwd),
            "env": _pairs(env or {}),
            "timeout_ms": max(1, round(min(timeout_s, _FOREVER_S) * 1000)),
            "spill": int(blobs is not None),
        }
        spilling = None if blobs is None else Spilling(blobs)
        collecting = Collecting(spilling)
        try:
            work = self._connection.ask("run", request, stdin, on_data=collecting.add)
            answer = await self._within(deadline, timeout_s + _END_S, work)
            return await collecting.execution(answer)
        finally:
            if spilling is not None:
                spilling.discard()

    async def start(self, command: Sequence[str], *, deadline: Deadline) -> SandboxProcess:
        process = SupervisedProcess(self._connection)
        await self._started(process, deadline, process.start(_argv(command), b".", []))
        return process

    async def spawn(
        self,
        command: Sequence[str] | str,
        *,
        deadline: Deadline,
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
    ) -> BackgroundProcess:
        process = SupervisedBackground(self._connection)
        await self._started(process, deadline, process.start(_argv(command), _raw(cwd), _pairs(env or {})))
        return process

    async def _started(self, process: AsyncResource, deadline: Deadline, start: Awaitable[None]) -> None:
        """Await the start of a process; one that nobody gets to see is not left running."""
        try:
            await self._within(deadline, _ANSWER_S, start)
        except BaseException:
            await process.aclose()
            raise

    async def read(self, path: str, *, max_bytes: int = 1 << 20) -> bytes:
        content = bytearray()

        async def add(answer: Answer) -> None:
            content.extend(answer.payload)

        await self._file_operation("read", path, {"limit": max_bytes}, on_data=add)
        return bytes(content)

    async def write(self, path: str, content: bytes) -> None:
        await self._file_operation("write", path, {}, content)

    async def list(self, path: str = ".") -> list[FileEntry]:
        entries: list[FileEntry] = []

        async def add(answer: Answer) -> None:
            fields = answer.fields
            for name, kind, size in zip(
                texts(fields, "names"), texts(fields, "kinds"), texts(fields, "sizes"), strict=True
            ):
                entries.append(FileEntry(name=file_name(name), kind=kind.decode(), size_bytes=int(size)))

        await self._file_operation("list", path, {}, on_data=add)
        return entries

    async def snapshot(self, blobs: BlobSink, *, limit: SnapshotLimit | None = None) -> dict[str, Spill]:
        taking = Snapshotting(blobs, limit)
        try:
            await self._file_operation("snapshot", ".", {}, on_data=taking.add)
            await taking.store()
        finally:
            taking.spilling.discard()
        return taking.found

    async def restore(self, files: Mapping[str, Spill], blobs: BlobSource) -> None:
        await self._file_operation("clear", ".", {})
        for path, spill in files.items():
            await self.write(path, await asyncio.to_thread(blobs.get, spill.sha256))

    async def stop_processes(self) -> None:
        await self._within(Deadline("no limit"), _ANSWER_S, self._connection.ask("stop", {}))

    async def relabel(self, labels: Mapping[str, str]) -> None:
        if self._connection.lost is not None:
            raise SandboxFault(self._connection.lost)
        try:
            await asyncio.to_thread(self._write_labels, labels)
        except OSError as error:
            raise SandboxFault(f"the labels of a sandbox could not be stored: {error}") from error

    async def network_state(self) -> NetworkState:
        return await measure_network(self._try_to_reach, proxy_port=self._proxy_port)

    async def _try_to_reach(self, arguments: list[bytes]) -> Execution:
        collecting = Collecting(None)
        request: dict[str, Value] = {"argv": arguments, "cwd": b".", "env": [], "timeout_ms": _REACH_MS, "spill": 0}
        work = self._connection.ask("reach", request, on_data=collecting.add)
        answer = await self._within(Deadline("no limit"), _REACH_MS / 1000 + _END_S, work)
        return await collecting.execution(answer)

    async def usage(self) -> ResourceUse:
        work = self._connection.ask("usage", {})
        fields = (await self._within(Deadline("no limit"), _FILE_S, work)).fields
        counted = self._memory()
        return ResourceUse(
            cpu_s=number(fields, "cpu_micros") / 1e6,
            memory_bytes=number(fields, "memory") if counted is None else counted.now_bytes,
            peak_memory_bytes=None if counted is None else counted.peak_bytes,
            processes=number(fields, "processes"),
            workspace_bytes=number(fields, "bytes"),
            workspace_files=number(fields, "files"),
        )

    async def aclose(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        if not await finish(end_of(self._closing), _CLOSE_S):
            _log.warning("closing a sandbox takes longer than %.0f s; it goes on in the background", _CLOSE_S)

    async def _close(self) -> None:
        async with AsyncExitStack() as steps:
            steps.push_async_callback(self._release)
            steps.push_async_callback(self._connection.aclose)
            if self._egress is not None:
                steps.push_async_callback(self._egress.aclose)

    async def _file_operation(
        self,
        op: str,
        path: str,
        fields: Mapping[str, Value],
        content: bytes = b"",
        *,
        on_data: DataHandler | None = None,
    ) -> None:
        try:
            request = {"path": _file_name(path), **fields}
            work = self._connection.ask(op, request, content, on_data=on_data)
            await self._within(Deadline("no limit"), _FILE_S, work)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None

    async def _within(self, deadline: Deadline, limit_s: float, work: Awaitable[T]) -> T:
        """Await an answer, at most until the caller's deadline, and never longer than a supervisor may take.

        Raises:
            DeadlineReached: The caller's fired; the supervisor is told to give up what was asked.
            SandboxFault: The supervisor took too long; the sandbox is closed.
        """
        own = Deadline.after(limit_s, "the sandbox's supervisor")
        first = min(own, deadline, key=lambda each: each.at)
        try:
            async with first.enforce():
                return await work
        except DeadlineReached as reached:
            if reached.deadline is not own:
                raise
            await self.aclose()
            raise SandboxFault(f"the sandbox did not answer within {limit_s:.0f} s; it was closed") from reached


def _argv(command: Sequence[str] | str) -> list[bytes]:
    return [_raw(part) for part in (("/bin/sh", "-c", command) if isinstance(command, str) else command)]


def _pairs(env: Mapping[str, str]) -> list[bytes]:
    return [_raw(name) + b"=" + _raw(value) for name, value in env.items()]


def _raw(said: str) -> bytes:
    """Encode what a policy wrote; a lone surrogate becomes the bytes it would have, which no program takes for text."""
    try:
        return said.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return said.encode("utf-8", "surrogatepass")


def _file_name(path: str) -> bytes:
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ)) from None
