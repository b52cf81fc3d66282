"""One connection out of a sandbox, carried in both directions until it is over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

_HALF_S = 120.0
"""For a connection of which one direction has ended: how long the other may be without news."""
_FLUSH_S = 10.0
"""For the host to take what was written last."""
_PIECE = 1 << 16


class Stream(Protocol):
    """The sandbox's end of it."""

    async def read(self) -> bytes:
        """Give the next bytes; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send; waits while the other end does not take more."""
        ...

    async def write_end(self) -> None:
        """Send the end."""
        ...


class BothWays:
    """Both directions. Whoever made the connection to the host closes it, whatever the end was."""

    def __init__(
        self,
        stream: Stream,
        outward: AsyncGenerator[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Take over the ends.

        Args:
            stream: The sandbox's end.
            outward: What comes of it for the host, piece by piece.
            reader: From the host.
            writer: To it.
        """
        self._stream = stream
        self._outward = outward
        self._reader = reader
        self._writer = writer
        self._pieces = 0
        """Carried so far, either way."""
        self._ended = 0
        """Directions that are over."""

    async def carry(self) -> None:
        """Carry until both directions are over, or one is and nothing more comes of the other.

        Raises:
            BaseExceptionGroup: Of what ``outward`` raised, and ``OSError`` where one of the ends is gone.
        """
        async with aclosing(self._outward), anyio.create_task_group() as ways:
            ways.start_soon(self._to_its_end, self._out, ways)
            ways.start_soon(self._to_its_end, self._in, ways)
        self._writer.close()
        with contextlib.suppress(OSError):  # a TimeoutError is one
            async with asyncio.timeout(_FLUSH_S):
                await self._writer.wait_closed()

    async def _to_its_end(self, way: Callable[[], Awaitable[None]], ways: TaskGroup) -> None:
        await way()
        self._ended += 1
        if self._ended == 1:
            ways.start_soon(self._end_when_idle, ways)
        else:
            ways.cancel_scope.cancel()

    async def _end_when_idle(self, ways: TaskGroup) -> None:
        """A server may keep a connection open whose client is gone, and a client one that it forgot."""
        before = -1
        while before != self._pieces:
            before = self._pieces
            await anyio.sleep(_HALF_S)
        ways.cancel_scope.cancel()

    async def _out(self) -> None:
        async for piece in self._outward:
            self._writer.write(piece)
            await self._writer.drain()
            self._pieces += 1
        self._writer.write_eof()

    async def _in(self) -> None:
        while piece := await self._reader.read(_PIECE):
            await self._stream.write(piece)
            self._pieces += 1
        await self._stream.write_end()
