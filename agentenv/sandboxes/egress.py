"""The way out of a sandbox: an HTTP proxy in the harness that reaches the hosts it was given, and nothing else.

It takes ``CONNECT host:port`` (what carries TLS) and requests in absolute form (plain HTTP). Which hosts, and which
addresses for them, is `agentenv.core.hosts`'s to say; the connection goes to the very address that was checked.

Known limit: within a tunnel the bytes are the sandbox's own, so where one address serves many names (a content
network), TLS for another of them can be asked for through it.

Source: RFC 9110, sections 7.1 and 9.3.6; RFC 9112, section 3.2.
"""

from __future__ import annotations

import asyncio
import re
from typing import Protocol
from urllib.parse import urlsplit

import anyio

from agentenv.core.hosts import (
    HostNotFound,
    HostRefused,
    HostRule,
    MayConnect,
    Resolve,
    addresses_for,
    is_public,
    look_up,
)

_HEAD_BYTES = 1 << 16
_TOO_LONG = "431 Request Header Fields Too Large\nthe request's head is too long"
_HEAD_S = 30.0
_CONNECT_S = 15.0
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/1\.[01]")
"""Method and target. Source: RFC 9112, section 3."""
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*")
"""No folded line, no bare line end: servers read those in different ways. Source: RFC 9112, section 5."""
_PIECE = 1 << 16
_HOP_BY_HOP = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"upgrade", b"te", b"host"})
"""Header fields that are the proxy's to set; with those that begin with ``proxy-``."""


class Stream(Protocol):
    """One connection out of a sandbox."""

    async def read(self) -> bytes:
        """Give the next bytes; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send; waits while the other end does not take more."""
        ...

    async def write_end(self) -> None:
        """Send the end."""
        ...


class _Refused(Exception):
    """Not served: status line and what is wrong, for who reads the answer."""


class EgressProxy:
    """Serves the connections of one sandbox."""

    def __init__(
        self,
        rules: tuple[HostRule, ...],
        *,
        may_connect: MayConnect = is_public,
        resolve: Resolve = look_up,
    ) -> None:
        """Make one.

        Args:
            rules: What may be reached.
            may_connect: Judges an address. Anything but the default is for tests.
            resolve: Looks a name up.
        """
        self._rules = rules
        self._may_connect = may_connect
        self._resolve = resolve

    async def serve(self, stream: Stream) -> None:
        """Serve one connection to its end."""
        try:
            async with asyncio.timeout(_HEAD_S):
                head, rest = await _read_head(stream)
            host, port, forwarded = _understand(head)
            reader, writer = await self._connect(host, port)
        except (_Refused, TimeoutError) as refusal:
            await stream.write(_answer(str(refusal) or "408 Request Timeout\nno request came"))
            await stream.write_end()
            return
        try:
            if forwarded is None:
                await stream.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            writer.write((forwarded or b"") + rest)
            async with anyio.create_task_group() as both:
                both.start_soon(_carry_out, stream, writer)
                both.start_soon(_carry_in, reader, stream)
        except* OSError:
            pass  # one of the ends is gone, and so the tunnel ends
        finally:
            writer.close()

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            checked = await addresses_for(host, port, self._rules, may_connect=self._may_connect, resolve=self._resolve)
        except HostRefused as refused:
            raise _Refused(f"403 Forbidden\n{refused}") from None
        except HostNotFound as unknown:
            raise _Refused(f"502 Bad Gateway\n{unknown}") from None
        why = ""
        for address in checked:
            try:
                async with asyncio.timeout(_CONNECT_S):
                    return await asyncio.open_connection(address, port)
            except OSError as error:  # a TimeoutError is one
                why = error.strerror or "no answer"
        raise _Refused(f"502 Bad Gateway\n{host}:{port} cannot be reached: {why}")


async def _read_head(stream: Stream) -> tuple[bytes, bytes]:
    """Read to the empty line; give what is before it, and what came after."""
    content = b""
    while (end := content.find(b"\r\n\r\n")) < 0:
        if len(content) > _HEAD_BYTES:
            raise _Refused(_TOO_LONG)
        piece = await stream.read()
        if not piece:
            raise _Refused("400 Bad Request\nthe request ended before its head did")
        content += piece
    if end > _HEAD_BYTES:
        raise _Refused(_TOO_LONG)
    return content[:end], content[end + 4 :]


def _understand(head: bytes) -> tuple[str, int, bytes | None]:
    """Give host, port, and the head to pass on; None for a tunnel."""
    lines = head.split(b"\r\n")
    asked = _REQUEST_LINE.fullmatch(lines[0])
    if asked is None:
        raise _Refused("400 Bad Request\nthis is a proxy for HTTP/1.1")
    if not all(map(_FIELD.fullmatch, lines[1:])):
        raise _Refused("400 Bad Request\na header field is malformed")
    method, target = asked[1], asked[2]
    try:
        text = target.decode("ascii")
        url = urlsplit(f"//{text}" if method == b"CONNECT" else text)
        host, port = (url.hostname or "").rstrip("."), url.port
    except ValueError:
        raise _Refused("400 Bad Request\nthe request's target is no address") from None
    if not host or (method == b"CONNECT" and port is None) or (method != b"CONNECT" and url.scheme != "http"):
        raise _Refused("400 Bad Request\nexpected CONNECT host:port, or an absolute http:// address")
    if method == b"CONNECT":
        return host, int(port or 0), None
    return host, port or 80, _forwarded(method, url.path or "/", url.query, url.netloc.rpartition("@")[2], lines[1:])


def _forwarded(method: bytes, path: str, query: str, authority: str, fields: list[bytes]) -> bytes:
    """Write the head anew: the host that was checked is the one that is named, and only one request is served."""
    target = f"{path}?{query}" if query else path
    kept = [field for field in fields if not _is_ours(field.partition(b":")[0].lower())]
    ours = [b"%b %b HTTP/1.1" % (method, target.encode()), b"Host: " + authority.encode(), b"Connection: close"]
    return b"\r\n".join([*ours, *kept]) + b"\r\n\r\n"


def _is_ours(name: bytes) -> bool:
    return name in _HOP_BY_HOP or name.startswith(b"proxy-")


def _answer(refusal: str) -> bytes:
    status, _, why = refusal.partition("\n")
    body = f"{why}\n".encode()
    return b"HTTP/1.1 %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (
        status.encode(),
        len(body),
        body,
    )


async def _carry_out(stream: Stream, writer: asyncio.StreamWriter) -> None:
    while piece := await stream.read():
        writer.write(piece)
        await writer.drain()
    writer.write_eof()


async def _carry_in(reader: asyncio.StreamReader, stream: Stream) -> None:
    while piece := await reader.read(_PIECE):
        await stream.write(piece)
    await stream.write_end()
