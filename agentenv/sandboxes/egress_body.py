"""The body of one HTTP request, and that nothing comes after it.

What is passed on is framed anew: where a body ends is then one thing for the proxy and for the server, and what a
client sends after it, which a server that keeps connections open would take for another request, never gets there.

Source: RFC 9112, sections 6 and 7.1.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

Read = Callable[[], Awaitable[bytes]]
"""Gives the next bytes; empty at the end."""

_LENGTH = re.compile(rb"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;[^\r\n]*)?")
_LINE_BYTES = 1 << 14
_TRAILER_LINES = 100


class BadBody(Exception):
    """A body that has no end one could agree on, or something after its end; the text says what."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How long a body is."""

    length: int | None = 0
    """None: it comes in chunks."""
    fields: tuple[bytes, ...] = ()
    """The header fields that say it."""

    @classmethod
    def of(cls, lengths: list[bytes], codings: list[bytes]) -> Framing:
        """Read it from the values of ``Content-Length`` and of ``Transfer-Encoding``, as they were sent.

        Raises:
            BadBody: Servers may read it in different ways.
        """
        if codings:
            if lengths or [value.strip(b" \t").lower() for value in codings] != [b"chunked"]:
                raise BadBody("a body is either of a Content-Length or chunked, and coded in no other way")
            return cls(None, (b"Transfer-Encoding: chunked",))
        if not lengths:
            return cls()
        length = lengths[0].strip(b" \t")
        if len(lengths) > 1 or not _LENGTH.fullmatch(length):
            raise BadBody("Content-Length is not one number")
        return cls(int(length), (b"Content-Length: %b" % length,))


async def body(read: Read, begin: bytes, framing: Framing) -> AsyncGenerator[bytes]:
    """Give the body as it is to be passed on, and end when the sender does.

    Args:
        read: Gives what follows ``begin``.
        begin: What has come already.
        framing: How long it is.

    Raises:
        BadBody: It is not framed as it says, or it is over and more comes.
    """
    source = _Source(read, begin)
    if framing.length is None:
        while size := _size_of(await source.line()):
            async for piece in source.pieces(size):
                yield b"%x\r\n%b\r\n" % (len(piece), piece)
            if await source.line():
                raise BadBody("a chunk that is longer than it says")
        await source.skip_trailers()
        yield b"0\r\n\r\n"
    else:
        async for piece in source.pieces(framing.length):
            yield piece
    await source.expect_end()


def _size_of(line: bytes) -> int:
    found = _CHUNK.fullmatch(line)
    if found is None:
        raise BadBody("a chunk without a size")
    return int(found[1], 16)


class _Source:
    """What a client sends, by lines and by lengths."""

    def __init__(self, read: Read, begin: bytes) -> None:
        self._read = read
        self._waiting = begin

    async def _more(self) -> bytes:
        piece = await self._read()
        if not piece:
            raise BadBody("the request ended before its body did")
        return piece

    async def line(self) -> bytes:
        """Give the next line without its end."""
        while (end := self._waiting.find(b"\r\n")) < 0:
            if len(self._waiting) > _LINE_BYTES:
                raise BadBody("a line of a chunked body is too long")
            self._waiting += await self._more()
        line, self._waiting = self._waiting[:end], self._waiting[end + 2 :]
        return line

    async def pieces(self, size: int) -> AsyncGenerator[bytes]:
        """Give the next ``size`` bytes as they come."""
        while size:
            if not self._waiting:
                self._waiting = await self._more()
            piece, self._waiting = self._waiting[:size], self._waiting[size:]
            size -= len(piece)
            yield piece

    async def skip_trailers(self) -> None:
        """Drop the fields after the last chunk."""
        for _ in range(_TRAILER_LINES):
            if not await self.line():
                return
        raise BadBody("too many fields after a body")

    async def expect_end(self) -> None:
        """Wait for the end of what the client sends; old clients send an empty line before it."""
        while not self._waiting.strip(b"\r\n"):
            self._waiting = await self._read()
            if not self._waiting:
                return
        raise BadBody("one request to a connection")
