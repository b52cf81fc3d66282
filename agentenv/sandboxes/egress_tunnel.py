"""What may go through a tunnel: TLS for a host of the list; to ports that are not the web's, other protocols as well.

One address may serve many hosts, so that the host a tunnel was asked for is not yet the one that is talked to.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from agentenv.core.hosts import HostRule, address_of
from agentenv.sandboxes.egress_carrying import Stream
from agentenv.sandboxes.egress_request import Asked, answer
from agentenv.sandboxes.egress_tls import UNRECOGNIZED_NAME, Hello, NotTls, is_tls, read_hello

_WEB = frozenset({80, 443})


class Closed(Exception):
    """A tunnel that is not to be used in this way. Its argument is what the client is told before the end."""


async def tunnelled(asked: Asked, begin: bytes, stream: Stream, rules: tuple[HostRule, ...]) -> AsyncGenerator[bytes]:
    """Give what a client sends through a tunnel, once it is clear that it may.

    Args:
        asked: For whom the tunnel is.
        begin: What has come already.
        stream: Where more comes from.
        rules: What may be reached.

    Raises:
        Closed: It may not.
    """
    begin = begin or await stream.read()
    hello: Hello | None = None
    if is_tls(begin):
        begin, hello = await _read_hello(begin, stream)
        if hello is None or not _may_name(asked, hello.server_name, rules):
            raise Closed(UNRECOGNIZED_NAME)
    elif begin and asked.port in _WEB:
        raise Closed(answer("403 Forbidden\nthrough a tunnel to this port goes only TLS; ask for http:// without one"))
    while begin:
        yield begin
        begin = await stream.read()


async def _read_hello(begin: bytes, stream: Stream) -> tuple[bytes, Hello | None]:
    """Read the first message whole; give what was read, and the message, or None where it is none."""
    try:
        while (hello := read_hello(begin)) is None:
            piece = await stream.read()
            if not piece:
                return begin, None
            begin += piece
    except NotTls:
        return begin, None
    return begin, hello


def _may_name(asked: Asked, name: str | None, rules: tuple[HostRule, ...]) -> bool:
    if name is None:
        # The server would choose, perhaps another host than the one asked for; where that is an address, it is meant.
        return address_of(asked.host) is not None
    return any(rule.allows(name, asked.port) for rule in rules)
