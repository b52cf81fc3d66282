"""What a sandbox asks of the proxy: a tunnel to a host, or one request to it; and how it is answered where it is not.

Source: RFC 9110, sections 7.1 and 9.3.6; RFC 9112, sections 3.2 and 5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from agentenv.sandboxes.egress_body import BadBody, Framing

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/1\.[01]")
"""Method and target. Source: RFC 9112, section 3."""
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*")
"""No folded line, no bare line end: servers read those in different ways. Source: RFC 9112, section 5."""
_LENGTH, _CODING = b"content-length", b"transfer-encoding"
_OURS = frozenset({
    *(b"connection", b"proxy-connection", b"keep-alive", b"upgrade", b"te", b"trailer", b"host"), _LENGTH, _CODING
})  # fmt: skip
"""Header fields that are the proxy's to set; with those that begin with ``proxy-``."""


class Refused(Exception):
    """Not served: status line and what is wrong, for who reads the answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that can be understood; whether its host may be reached is not said."""

    host: str
    """A name in lower case without a final dot, or an address."""
    port: int
    head: bytes | None = None
    """What to send to the host before the body; None for a tunnel."""
    framing: Framing = field(default_factory=Framing)
    """Of the body."""


def understand(head: bytes) -> Asked:
    """Read the head of a request, without the empty line at its end.

    Raises:
        Refused: It is malformed, or nothing for a proxy.
    """
    lines = head.split(b"\r\n")
    asked = _REQUEST_LINE.fullmatch(lines[0])
    if asked is None:
        raise Refused("400 Bad Request\nthis is a proxy for HTTP/1.1")
    if not all(map(_FIELD.fullmatch, lines[1:])):
        raise Refused("400 Bad Request\na header field is malformed")
    method, target = asked[1], asked[2]
    try:
        text = target.decode("ascii")
        url = urlsplit(f"//{text}" if method == b"CONNECT" else text)
        host, port = (url.hostname or "").rstrip("."), url.port
    except ValueError:
        raise Refused("400 Bad Request\nthe request's target is no address") from None
    if not host or (method == b"CONNECT" and port is None) or (method != b"CONNECT" and url.scheme != "http"):
        raise Refused("400 Bad Request\nexpected CONNECT host:port, or an absolute http:// address")
    if method == b"CONNECT":
        return Asked(host, int(port or 0))
    framing = _framing(lines[1:])
    target = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
    authority = url.netloc.rpartition("@")[2]
    return Asked(host, port or 80, _written(method, target, authority, [*framing.fields, *_theirs(lines[1:])]), framing)


def answer(refusal: str) -> bytes:
    """Make the answer of what a `Refused` says."""
    status, _, why = refusal.partition("\n")
    body = f"{why}\n".encode()
    return b"HTTP/1.1 %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (
        status.encode(),
        len(body),
        body,
    )


def _written(method: bytes, target: str, authority: str, fields: list[bytes]) -> bytes:
    """Write the head anew: the host that was checked is the one that is named, and only one request is served."""
    ours = [b"%b %b HTTP/1.1" % (method, target.encode()), b"Host: " + authority.encode(), b"Connection: close"]
    return b"\r\n".join([*ours, *fields]) + b"\r\n\r\n"


def _theirs(fields: list[bytes]) -> list[bytes]:
    return [field for field in fields if (name := _name(field)) not in _OURS and not name.startswith(b"proxy-")]


def _framing(fields: list[bytes]) -> Framing:
    def values(name: bytes) -> list[bytes]:
        return [field.partition(b":")[2] for field in fields if _name(field) == name]

    try:
        return Framing.of(values(_LENGTH), values(_CODING))
    except BadBody as error:
        raise Refused(f"400 Bad Request\n{error}") from None


def _name(field: bytes) -> bytes:
    return field.partition(b":")[0].lower()
