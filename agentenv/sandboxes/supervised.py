"""A sandbox as the contract has it, spoken to through its supervisor. The same for every launcher."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from agentenv.core.blobs import BlobSink
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.lifetime import finish
from agentenv.core.sandbox import (
    Execution,
    FileEntry,
    Output,
    Sandbox,
    SandboxLimits,
    SandboxProcess,
    SnapshotLimit,
)
from agentenv.errors import SandboxFault
from agentenv.records.messages import Spill
from agentenv.sandboxes.connection import Answer, Connection, DataHandler
from agentenv.sandboxes.kept_process import SupervisedProcess
from agentenv.sandboxes.spilling import Spilling
from agentenv.sandboxes.supervisor.frames import number, text, texts

if TYPE_CHECKING:
    from agentenv.sandboxes.supervisor.frames import Value

T = TypeVar("T")

_log = logging.getLogger(__name__)

_END_S = 6.0
"""After a command's timeout: how long its supervisor may take to report, before the sandbox is given up as stuck."""
_ANSWER_S = 10.0
"""For what a supervisor does at once."""
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
        release: Callable[[], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._environment = environment
        self._release = release
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
                "env": _pairs(self._environment),
            },
        )

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
        collecting = _Collecting(spilling)
        try:
            work = self._connection.ask("run", request, stdin, on_data=collecting.add)
            answer = await self._within(deadline, timeout_s + _END_S, work)
            return await collecting.execution(answer)
        finally:
            if spilling is not None:
                spilling.discard()

    async def start(self, command: Sequence[str], *, deadline: Deadline) -> SandboxProcess:
        process = SupervisedProcess(self._connection)
        await self._within(deadline, _ANSWER_S, process.start(_argv(command), b".", []))
        return process

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
                entries.append(FileEntry(name=_text(name), kind=kind.decode(), size_bytes=int(size)))

        await self._file_operation("list", path, {}, on_data=add)
        return entries

    async def snapshot(self, blobs: BlobSink, *, limit: SnapshotLimit | None = None) -> dict[str, Spill]:
        taking = _Snapshotting(blobs, limit)
        try:
            await self._file_operation("snapshot", ".", {}, on_data=taking.add)
        finally:
            taking.spilling.discard()
        return taking.found

    async def stop_processes(self) -> None:
        await self._within(Deadline("no limit"), _ANSWER_S, self._connection.ask("stop", {}))

    async def aclose(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        if not await finish(_end_of(self._closing), _CLOSE_S):
            _log.warning("closing a sandbox takes longer than %.0f s; it goes on in the background", _CLOSE_S)

    async def _close(self) -> None:
        await self._connection.aclose()
        await self._release()

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
            DeadlineReached: The caller's fired; the sandbox is closed.
            SandboxFault: The supervisor took too long; the sandbox is closed.
        """
        own = Deadline.after(limit_s, "the sandbox's supervisor")
        first = min(own, deadline, key=lambda each: each.at)
        try:
            async with first.enforce():
                return await work
        except DeadlineReached as reached:
            if reached.deadline is not first:
                raise
            await self.aclose()
            if first is deadline:
                raise
            raise SandboxFault(f"the sandbox did not answer within {limit_s:.0f} s; it was closed") from reached


class _Collecting:
    """Puts together what a command wrote."""

    def __init__(self, spilling: Spilling | None) -> None:
        self._spilling = spilling
        self._kept = bytearray()

    async def add(self, answer: Answer) -> None:
        """Take a piece: of the kept ends, or of a stream that is spilled."""
        part = text(answer.fields, "part")
        if part == b"kept":
            self._kept += answer.payload
        elif self._spilling is not None:
            await self._spilling.add(part, answer.payload)

    async def execution(self, answer: Answer) -> Execution:
        """Make the result from the last frame."""
        fields, kept = answer.fields, memoryview(bytes(self._kept) + answer.payload)
        ends: list[bytes] = []
        for size in text(fields, "sizes").split(b","):
            ends.append(bytes(kept[: int(size)]))
            kept = kept[int(size) :]
        return Execution(
            exit_code=number(fields, "code"),
            timed_out=bool(number(fields, "timed_out")),
            stdout=await self._output(b"out", ends[0], ends[1], number(fields, "out")),
            stderr=await self._output(b"err", ends[2], ends[3], number(fields, "err")),
            duration_s=number(fields, "micros") / 1e6,
            killed=number(fields, "killed"),
        )

    async def _output(self, stream: bytes, head: bytes, tail: bytes, total: int) -> Output:
        spill = None if self._spilling is None else await self._spilling.commit(stream)
        return Output(head=head, tail=tail, total_bytes=total, spill=spill)


class _Snapshotting:
    """Stores the files of a workspace as they come, small ones at once."""

    def __init__(self, blobs: BlobSink, limit: SnapshotLimit | None) -> None:
        self._blobs = blobs
        self._limit = limit
        self._bytes = 0
        self.spilling = Spilling(blobs)
        self.found: dict[str, Spill] = {}
        self._first: bytes | None = None
        """First piece of the file at hand, until a second one comes."""
        self._long = False

    async def add(self, answer: Answer) -> None:
        """Take a piece of a file; an empty one ends it.

        Raises:
            OSError: It is one too many.
        """
        self._bytes += len(answer.payload)
        if self._limit is not None:
            self._limit.check(len(self.found) + 1, self._bytes)
        path = text(answer.fields, "path")
        if number(answer.fields, "last"):
            spill = await self.spilling.commit(path) if self._long else None
            self.found[_text(path)] = spill or await asyncio.to_thread(self._blobs.put, self._first or b"")
            self._first, self._long = None, False
        elif self._first is None:
            self._first = answer.payload
        else:
            if not self._long:
                self._long = True
                await self.spilling.add(path, self._first)
            await self.spilling.add(path, answer.payload)


async def _end_of(task: asyncio.Task[None]) -> None:
    """Wait for a task, without ending it when the waiting ends."""
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


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


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
