"""What the policy is shown of a tool's output: representable, bounded, and honest about what is left out.

Two laws, both tested: the text is valid UTF-8 without control characters (beyond tab, line feed and carriage return) or
lone surrogates and never longer than the cap; and head + left out + tail = the whole, byte for byte.
"""

from __future__ import annotations

import codecs
import functools
import math
import re
from typing import Any, NamedTuple

import msgspec

from agentenv.core.blobs import BlobSink
from agentenv.core.sandbox import Output
from agentenv.records.messages import Spill
from agentenv.toolkit.off_loop import PIECE

_ODD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
MAX_LEVELS = 64
"""Of nesting in a value for the grader; the readers of calls allow as much in arguments."""


class Fitted(NamedTuple):
    """A text that fits."""

    text: str
    dropped_bytes: int
    """Bytes of the visible form of the whole text that are in neither the head nor the tail shown."""
    spill: Spill | None
    """The visible form of the whole text as UTF-8, or where the whole already was; None if nothing was cut."""


def visible(text: str) -> str:
    r"""Write control characters and lone surrogates as escapes: ``\x00``, ``\ud800``.

    A surrogate that stands for an undecodable byte (PEP 383) is written as that byte: ``\xff``.
    """
    if len(text) <= PIECE:
        return _visible(text)
    return "".join(_visible(text[piece.start : piece.stop]) for piece in _pieces(text))


def decode(data: bytes) -> str:
    r"""Decode UTF-8; bytes that are not UTF-8 become escapes (``\xff``), as do control characters."""
    if len(data) <= PIECE:
        return _visible(data.decode("utf-8", "surrogateescape"))
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    pieces = [_visible(decoder.decode(data[piece.start : piece.stop])) for piece in _pieces(data)]
    return "".join([*pieces, _visible(decoder.decode(b"", final=True))])


def excerpt(stream: Output) -> tuple[str, int]:
    """Give the text of a captured stream, a line in place of its gap, and how many bytes the gap is.

    Characters broken by the gap belong to it.
    """
    if not stream.dropped_bytes:
        return decode(stream.head + stream.tail), 0
    head, tail = _before_gap(stream.head), _after_gap(stream.tail)
    dropped = stream.total_bytes - len(head) - len(tail)
    return f"{decode(head)}\n[... {dropped:,} bytes left out here ...]\n{decode(tail)}", dropped


def fit(text: str, cap_bytes: int, blobs: BlobSink, kept: Spill | None = None) -> Fitted:
    """Make a text representable and cut its middle so that it takes at most ``cap_bytes`` as UTF-8.

    Args:
        text: Any text.
        cap_bytes: Most bytes of the result, at least 0. Below some 80 there is no room for the line that counts what
            is left out, and only the head is given.
        blobs: Where the whole goes if it is cut.
        kept: Where the whole already is; it is not stored again.

    Raises:
        HarnessFault: The blob could not be stored.
    """
    if len(text) <= cap_bytes:
        safe = visible(text)
        if (len(safe) if safe.isascii() else len(safe.encode())) <= cap_bytes:
            return Fitted(safe, 0, None)
    ends = _Ends(cap_bytes)
    if kept is None:
        kept = _spill(text, ends, blobs)
    else:
        _scan(text, ends)
    shown, dropped = ends.text(kept.size_bytes)
    return Fitted(shown, dropped, kept)


def json_value(value: Any, *, levels: int = MAX_LEVELS) -> Any:
    r"""Make a value that JSON in UTF-8 with 64-bit integers can carry, whoever reads it.

    Lone surrogates become escapes, integers beyond 64 bits and non-finite floats their decimal text. Dataclasses,
    enumerations, dates, sets and the like become what `msgspec.to_builtins` makes of them.

    Raises:
        TypeError: There is no such form, or it is nested more than 64 levels deep, which not every reader can take.
    """
    if levels < 0:
        raise TypeError(f"a value is nested more than {MAX_LEVELS} levels deep, or contains itself")
    if isinstance(value, str):
        return visible(value) if _ODD.search(value) else value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {json_value(str(key)): json_value(item, levels=levels - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item, levels=levels - 1) for item in value]
    return json_value(msgspec.to_builtins(value), levels=levels - 1)


def _visible(text: str) -> str:
    return text.translate(_escapes()) if _ODD.search(text) else text


@functools.cache
def _escapes() -> dict[int, str]:
    """Code point to escape of every odd character. A table is 3 to 10 times as fast as a function in a flood."""
    controls = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n\r"]
    table = {code: f"\\x{code:02x}" for code in controls}
    table.update({code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)})
    table.update({0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)})
    return table


def _before_gap(data: bytes) -> bytes:
    """Leave out an incomplete last character."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    decoder.decode(data[-4:])
    pending = len(decoder.getstate()[0])
    return data[: len(data) - pending]


def _after_gap(data: bytes) -> bytes:
    """Leave out what follows of a character that began in the gap."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


class _Ends:
    """The first and last bytes of a text that comes in pieces of whole characters."""

    def __init__(self, cap_bytes: int) -> None:
        self._cap = cap_bytes
        self._head = b""
        self._tail = b""
        self._total = 0

    def feed(self, piece: bytes) -> None:
        if len(self._head) < self._cap:
            self._head += piece[: self._cap - len(self._head)]
        self._tail = (self._tail + piece)[-self._cap :] if self._cap else b""
        self._total += len(piece)

    def text(self, kept_bytes: int) -> tuple[str, int]:
        """Give what is shown, and how many bytes are not."""
        marker = self._marker(kept_bytes)
        room = self._cap - len(marker.format(dropped=self._total))
        tail_room = room // 2 if marker else 0
        head = self._head[: room - tail_room].decode(errors="ignore")
        tail = self._tail[len(self._tail) - tail_room :].decode(errors="ignore")
        dropped = self._total - len(head.encode()) - len(tail.encode())
        return head + marker.format(dropped=dropped) + tail, dropped

    def _marker(self, kept_bytes: int) -> str:
        whole = f"the whole output of {kept_bytes:,} bytes is kept on record"
        for marker in (f"\n[... {{dropped:,}} bytes left out here; {whole} ...]\n", "\n[... {dropped:,} bytes ...]\n"):
            if self._cap >= 3 * len(marker.format(dropped=self._total)):
                return marker
        return ""


def _pieces(whole: str | bytes) -> list[range]:
    return [range(at, min(at + PIECE, len(whole))) for at in range(0, len(whole), PIECE)]


def _scan(text: str, ends: _Ends) -> None:
    for piece in _pieces(text):
        ends.feed(_visible(text[piece.start : piece.stop]).encode())


def _spill(text: str, ends: _Ends, blobs: BlobSink) -> Spill:
    writer = blobs.open()
    try:
        for piece in _pieces(text):
            data = _visible(text[piece.start : piece.stop]).encode()
            writer.write(data)
            ends.feed(data)
        return writer.commit()
    finally:
        writer.discard()
