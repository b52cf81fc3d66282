"""Whom a TLS client means to talk to: the server name in the first message that it sends.

Whatever the bytes are, reading them ends in one of three ways: there is a name or none, more bytes are needed, or this
is no TLS. A message is read up to a size that no client comes near.

Source: RFC 8446, sections 4.1.2, 4.2 and 5.1; RFC 6066, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _HOST_NAME = 0, 0
_HEAD = 5
"""Bytes of a record before what it carries: kind, version, length."""
_MOST_OF_RECORD = 1 << 14
_MOST_RECORDS = 64
_MOST_OF_MESSAGE = 1 << 14
"""With the largest keys there are it has a few thousand bytes."""

UNRECOGNIZED_NAME = bytes((21, 3, 3, 0, 2, 2, 112))
"""What a server answers that has no such name: a fatal alert. Source: RFC 8446, section 6.2."""


class NotTls(Exception):
    """These bytes are not what a TLS client sends first."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A TLS client's first message."""

    server_name: str | None
    """In lower case, without a final dot; None where it names none."""


def is_tls(begin: bytes) -> bool:
    """Whether it begins as TLS does; what does not is none, whatever follows."""
    return begin[:1] == bytes((_HANDSHAKE,))


def read_hello(data: bytes) -> Hello | None:
    """Read what a client sent first, from its first byte on; None: more is needed to tell.

    Raises:
        NotTls: It is something else.
    """
    message = bytearray()
    at = 0
    for _ in range(_MOST_RECORDS):
        head = data[at : at + _HEAD]
        if head and (head[0] != _HANDSHAKE or head[1:2] not in {b"", b"\3"}):
            raise NotTls("no record of a handshake")
        if len(head) < _HEAD:
            return None
        size = int.from_bytes(head[3:], "big")
        if not 0 < size <= _MOST_OF_RECORD:
            raise NotTls("a record of no size that there is")
        at += _HEAD + size
        message += data[at - size : at]
        body = _whole(message)
        if body is not None:
            return _hello(body)
        if len(data) < at:
            return None
    raise NotTls("a first message in too many pieces")


def _whole(message: bytearray) -> _Bytes | None:
    """Give the body of the message if all of it is there."""
    if message and message[0] != _CLIENT_HELLO:
        raise NotTls("not a client's first message")
    end = 4 + int.from_bytes(message[1:4], "big")
    if len(message) >= 4 and end > _MOST_OF_MESSAGE:
        raise NotTls("a first message that is too long")
    return _Bytes(bytes(message[4:end])) if 4 <= end <= len(message) and len(message) >= 4 else None


def _hello(body: _Bytes) -> Hello:
    body.take(2 + 32)  # version, random
    for size in (1, 2, 1):  # session, cipher suites, compression methods
        body.take(body.number(size))
    if not body.left:
        return Hello(None)
    extensions = body.block(2)
    body.end()
    names: list[_Bytes] = []
    while extensions.left:
        kind, content = extensions.number(2), extensions.block(2)
        if kind == _SERVER_NAME:
            names.append(content)
    if len(names) > 1:
        raise NotTls("two lists of server names")
    return Hello(_name(names[0]) if names else None)


def _name(content: _Bytes) -> str:
    entries = content.block(2)
    content.end()
    kind, name = entries.number(1), entries.block(2).rest()
    entries.end()
    if kind != _HOST_NAME or not name or not name.isascii():
        raise NotTls("a server name that is none")
    return name.decode("ascii").lower().rstrip(".")


class _Bytes:
    """Bytes that are taken from the front. Each method raises `NotTls` where there are too few."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def rest(self) -> bytes:
        return self._data[self._at :]

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise NotTls("a part that is longer than the whole")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def block(self, size: int) -> _Bytes:
        """Take what has its length before it, in this many bytes."""
        return _Bytes(self.take(self.number(size)))

    def end(self) -> None:
        """Make sure that nothing is left."""
        if self.left:
            raise NotTls("something after the end")
