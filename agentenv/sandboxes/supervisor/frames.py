"""Frames between harness and supervisor: the codec both ends share.

A frame is ``!II`` (bytes of the header, bytes of the payload), the header, the payload. A header is a mapping from
short names to whole numbers, byte strings, or lists of byte strings; each item is one type byte (``i``, ``b``, ``l``),
the name (``!B`` length), and the value (``!q``; ``!I`` length and bytes; ``!I`` count and that many byte strings).
File names and output are bytes from end to end, so nothing is lost to an encoding.

Every request has an ``id`` that the harness chose, and every answer repeats it.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False  # typing costs milliseconds of every start
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Value = int | bytes | list[bytes]
    Fields = Mapping[str, Value]

CHUNK = 1 << 18
"""Bytes of payload one frame of a longer stream carries."""
MAX_HEADER = 8 << 20
MAX_PAYLOAD = 16 << 20

_SIZES = struct.Struct("!II")
_NUMBER = struct.Struct("!q")
_LENGTH = struct.Struct("!I")


class FrameError(ValueError):
    """The bytes are no frame, or a frame lacks what its kind needs."""


def encode(fields: Fields, payload: bytes | memoryview = b"") -> bytes:
    """Build one frame.

    Raises:
        FrameError: Header or payload are longer than a frame may be.
    """
    parts = bytearray(_SIZES.size)
    for name, value in fields.items():
        key = name.encode()
        if isinstance(value, int):
            parts += b"i%c%b%b" % (len(key), key, _NUMBER.pack(value))
        elif isinstance(value, list):
            parts += b"l%c%b%b" % (len(key), key, _LENGTH.pack(len(value)))
            for item in value:
                parts += _LENGTH.pack(len(item)) + item
        else:
            parts += b"b%c%b%b%b" % (len(key), key, _LENGTH.pack(len(value)), value)
    header = len(parts) - _SIZES.size
    if header > MAX_HEADER or len(payload) > MAX_PAYLOAD:
        raise FrameError(
            f"a frame of {header} + {len(payload)} bytes is over the limit of {MAX_HEADER} + {MAX_PAYLOAD} bytes"
        )
    _SIZES.pack_into(parts, 0, header, len(payload))
    return bytes(parts + payload)


def sizes(prefix: bytes) -> tuple[int, int]:
    """Read the lengths of header and payload from the first ``PREFIX`` bytes of a frame.

    Raises:
        FrameError: They are over the limits: this is no frame.
    """
    header, payload = _SIZES.unpack(prefix)
    if header > MAX_HEADER or payload > MAX_PAYLOAD:
        raise FrameError(f"frame announces {header} + {payload} bytes, over {MAX_HEADER} + {MAX_PAYLOAD}")
    return header, payload


PREFIX = _SIZES.size


def decode(header: bytes) -> dict[str, Value]:
    """Read a header.

    Raises:
        FrameError: The bytes are no header. No other exception escapes.
    """
    try:
        return dict(_items(header))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise FrameError(f"damaged frame header: {error}") from None


def _items(header: bytes) -> Iterator[tuple[str, Value]]:
    at = 0
    while at < len(header):
        kind, length = header[at], header[at + 1]
        name = _take(header, at + 2, length).decode()
        at += 2 + length
        if kind == 0x69:
            yield name, _NUMBER.unpack_from(header, at)[0]
            at += _NUMBER.size
        elif kind == 0x62:
            value, at = _bytes(header, at)
            yield name, value
        elif kind == 0x6C:
            (count,) = _LENGTH.unpack_from(header, at)
            at += _LENGTH.size
            values: list[bytes] = []
            for _ in range(count):
                value, at = _bytes(header, at)
                values.append(value)
            yield name, values
        else:
            raise FrameError(f"damaged frame header: item of unknown type {kind}")


def _bytes(header: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(header, at)
    at += _LENGTH.size
    return _take(header, at, length), at + length


def _take(header: bytes, at: int, length: int) -> bytes:
    if at + length > len(header):
        raise FrameError(f"damaged frame header: {length} bytes at {at} of {len(header)}")
    return header[at : at + length]


def number(fields: Fields, name: str) -> int:
    """Give a whole number of a header.

    Raises:
        FrameError: It is missing, or something else.
    """
    value = fields.get(name)
    if not isinstance(value, int):
        raise FrameError(f"frame without the number {name!r}")
    return value


def text(fields: Fields, name: str) -> bytes:
    """Give a byte string of a header.

    Raises:
        FrameError: It is missing, or something else.
    """
    value = fields.get(name)
    if not isinstance(value, bytes):
        raise FrameError(f"frame without the byte string {name!r}")
    return value


def texts(fields: Fields, name: str) -> list[bytes]:
    """Give a list of byte strings of a header.

    Raises:
        FrameError: It is missing, or something else.
    """
    value = fields.get(name)
    if not isinstance(value, list):
        raise FrameError(f"frame without the list {name!r}")
    return value
