"""The way out of a sandbox: an HTTP proxy in the harness that reaches the hosts it was given, and nothing else.

It takes ``CONNECT host:port`` (what carries TLS) and requests in absolute form (plain HTTP), one to a connection. Which
hosts, and which addresses for them, is `agentenv.core.hosts`'s to say; the connection goes to the very address that was
checked. What goes through a tunnel is `agentenv.sandboxes.egress_tunnel`'s to say.

Known limit: what TLS has sealed cannot be seen here. A server that answers for another host than the one its client
named when it connected can be asked for that.

Source: RFC 9110, sections 7.1 and 9.3.6.
"""

from __future__ import annotations

import asyncio

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
from agentenv.core.lifetime import first_of
from agentenv.sandboxes.egress_body import BadBody, body
from agentenv.sandboxes.egress_carrying import BothWays, Stream
from agentenv.sandboxes.egress_request import Asked, Refused, answer, understand
from agentenv.sandboxes.egress_tunnel import Closed, tunnelled

_HEAD_BYTES = 1 << 16
_TOO_LONG = "431 Request Header Fields Too Large\nthe request's head is too long"
_HEAD_S = 30.0
_CONNECT_S = 15.0
_LOOK_UPS = 4
"""Names of one sandbox that are looked up at the same time: what looks them up is everybody's."""


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
        self._looking_up = asyncio.Semaphore(_LOOK_UPS)

    async def serve(self, stream: Stream) -> None:
        """Serve one connection to its end."""
        try:
            async with asyncio.timeout(_HEAD_S):
                head, rest = await _read_head(stream)
            asked = understand(head)
            reader, writer = await self._connect(asked.host, asked.port)
        except (Refused, TimeoutError) as refusal:
            await stream.write(answer(str(refusal) or "408 Request Timeout\nno request came"))
            await stream.write_end()
            return
        try:
            await self._carry(asked, rest, stream, reader, writer)
        finally:
            # What was to reach the host has: closing would wait for a host that takes nothing more.
            writer.transport.abort()

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with self._looking_up:
                checked = await addresses_for(
                    host, port, self._rules, may_connect=self._may_connect, resolve=self._resolve
                )
        except HostRefused as refused:
            raise Refused(f"403 Forbidden\n{refused}") from None
        except HostNotFound as unknown:
            raise Refused(f"502 Bad Gateway\n{unknown}") from None
        why = ""
        for address in checked:
            try:
                async with asyncio.timeout(_CONNECT_S):
                    return await asyncio.open_connection(address, port)
            except OSError as error:  # a TimeoutError is one
                why = error.strerror or "no answer"
        raise Refused(f"502 Bad Gateway\n{host}:{port} cannot be reached: {why}")

    async def _carry(
        self, asked: Asked, rest: bytes, stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        last = b""
        try:
            if asked.head is None:
                await stream.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                outward = tunnelled(asked, rest, stream, self._rules)
            else:
                writer.write(asked.head)
                outward = body(stream.read, rest, asked.framing)
            await BothWays(stream, outward, reader, writer).carry()
        except* (OSError, BadBody):
            pass  # one of the ends is gone, or is not to be served further; an answer may be under way already
        except* Closed as closed:
            last = first_of(closed).args[0]
        if last:
            await stream.write(last)
            await stream.write_end()


async def _read_head(stream: Stream) -> tuple[bytes, bytes]:
    """Read to the empty line; give what is before it, and what came after."""
    content = b""
    while (end := content.find(b"\r\n\r\n")) < 0:
        if len(content) > _HEAD_BYTES:
            raise Refused(_TOO_LONG)
        piece = await stream.read()
        if not piece:
            raise Refused("400 Bad Request\nthe request ended before its head did")
        content += piece
    if end > _HEAD_BYTES:
        raise Refused(_TOO_LONG)
    return content[:end], content[end + 4 :]
