"""Streams too long to be kept, on their way into blobs. What touches the disk does so in a thread."""

from __future__ import annotations

import asyncio

from agentenv.core.blobs import BlobSink, BlobWriter
from agentenv.records.messages import Spill

_BATCH = 1 << 19
"""Bytes that are collected for one visit to the disk: a thread costs more than the writing."""


class Spilling:
    """Some streams of one answer, each in a blob of its own once something of it arrives."""

    def __init__(self, blobs: BlobSink) -> None:
        self._blobs = blobs
        self._writers: dict[bytes, BlobWriter] = {}
        self._waiting: dict[bytes, bytearray] = {}
        self._discarded = False
        """Whether whoever asked has gone, perhaps while a thread was opening one."""

    async def add(self, stream: bytes, chunk: bytes) -> None:
        """Append to a stream."""
        if stream not in self._writers:
            writer = await asyncio.to_thread(self._blobs.open)
            if self._discarded:
                writer.discard()
                return
            self._writers[stream] = writer
        waiting = self._waiting.setdefault(stream, bytearray())
        waiting += chunk
        if len(waiting) >= _BATCH:
            await self._write(stream)

    async def commit(self, stream: bytes) -> Spill | None:
        """Make a stream durable; None if nothing of it came."""
        writer = self._writers.get(stream)
        if writer is None:
            return None
        await self._write(stream)
        return await asyncio.to_thread(writer.commit)

    async def _write(self, stream: bytes) -> None:
        batch = bytes(self._waiting.pop(stream, b""))
        await asyncio.to_thread(self._writers[stream].write, batch)

    def discard(self) -> None:
        """Throw away what was not committed. May be called twice."""
        self._discarded = True
        for writer in self._writers.values():
            writer.discard()
        self._writers.clear()
        self._waiting.clear()
