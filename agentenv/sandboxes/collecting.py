"""Answers that come in pieces, put together: what a command wrote, and the files of a snapshot."""

from __future__ import annotations

import asyncio

from agentenv.core.blobs import BlobSink
from agentenv.core.sandbox import Execution, Output, SnapshotLimit
from agentenv.records.messages import Spill
from agentenv.sandboxes.connection import Answer
from agentenv.sandboxes.spilling import Spilling
from agentenv.sandboxes.supervisor.frames import number, text


class Collecting:
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


_TOGETHER_FILES = 256
_TOGETHER_BYTES = 1 << 20


class Snapshotting:
    """Stores the files of a workspace as they come: long ones piece by piece, small ones many at a time."""

    def __init__(self, blobs: BlobSink, limit: SnapshotLimit | None) -> None:
        self._blobs = blobs
        self._limit = limit
        self._bytes = 0
        self.spilling = Spilling(blobs)
        self.found: dict[str, Spill] = {}
        self._small: list[tuple[str, bytes]] = []
        """Files that are not stored yet: a thread costs more than storing one."""
        self._small_bytes = 0
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
            self._limit.check(len(self.found) + len(self._small) + 1, self._bytes)
        path = text(answer.fields, "path")
        if number(answer.fields, "last"):
            await self._take(path)
            self._first, self._long = None, False
        elif self._first is None:
            self._first = answer.payload
        else:
            if not self._long:
                self._long = True
                await self.spilling.add(path, self._first)
            await self.spilling.add(path, answer.payload)

    async def _take(self, path: bytes) -> None:
        """Take a file whose end has come."""
        spill = await self.spilling.commit(path) if self._long else None
        if spill is not None:
            await self.store()
            self.found[file_name(path)] = spill
            return
        content = self._first or b""
        self._small.append((file_name(path), content))
        self._small_bytes += len(content)
        if len(self._small) >= _TOGETHER_FILES or self._small_bytes >= _TOGETHER_BYTES:
            await self.store()

    async def store(self) -> None:
        """Store what was taken and is not stored yet."""
        if self._small:
            small, self._small, self._small_bytes = self._small, [], 0
            self.found.update(await asyncio.to_thread(self._put_all, small))

    def _put_all(self, files: list[tuple[str, bytes]]) -> dict[str, Spill]:
        return {name: self._blobs.put(content) for name, content in files}


def file_name(name: bytes) -> str:
    """Give a name as text, undecodable bytes as lone surrogates (PEP 383)."""
    return name.decode("utf-8", "surrogateescape")
