"""The content of a file as lines and pieces, for data of megabytes.

Worked out in steps that are short each, so that a thread can do it beside an event loop: `agentenv.toolkit.off_loop`.
"""

from __future__ import annotations

from typing import NamedTuple

from agentenv.toolkit.output import visible

_STEP = 1 << 16
_MOST_PLACES = 20
_COMPARED_BYTES = 1 << 16
"""Largest file in which a text is also looked for with other spaces."""


class Lines(NamedTuple):
    """A part of a file."""

    shown: list[str]
    """Undecodable bytes are surrogates (PEP 383)."""
    wanted: int
    """Lines that were asked for and are there."""
    total: int
    """Lines of the whole."""


def lines_of(content: bytes, first: int, last: int | None, room_bytes: int) -> Lines:
    """Give lines ``first`` to ``last`` (None: the end), as many as fit, but one at least where there is one."""
    content = content.removesuffix(b"\n")
    total = sum(content.count(b"\n", at, at + _STEP) for at in range(0, len(content), _STEP)) + 1
    wanted = max(0, (total if last is None else min(total, last)) - first + 1)
    shown: list[str] = []
    at = _start_of(content, first) if wanted else 0
    while len(shown) < wanted:
        end = content.find(b"\n", at)
        line = content[at : len(content) if end < 0 else end].decode("utf-8", "surrogateescape")
        room_bytes -= len(visible(line).encode()) + 1
        if room_bytes < 0 and shown:
            break
        shown.append(line)
        at = end + 1
    return Lines(shown, wanted, total)


def _start_of(content: bytes, line: int) -> int:
    """Give the offset of a line that is there, the first being 1."""
    at, before = 0, line - 1
    while before and (count := content.count(b"\n", at, at + _STEP)) < before:
        before -= count
        at += _STEP
    for _ in range(before):
        at = content.index(b"\n", at) + 1
    return at


def not_once(content: bytes, piece: bytes) -> str:
    """Say why a piece of text is not there exactly once; empty if it is. Overlapping occurrences count each."""
    places: list[int] = []
    at, line, counted = found(content, piece), 1, 0
    while at >= 0 and len(places) < _MOST_PLACES:
        line += sum(content.count(b"\n", part, min(part + _STEP, at)) for part in range(counted, at, _STEP))
        places.append(line)
        counted = at
        at = found(content, piece, at + 1)
    if len(places) == 1:
        return ""
    if places:
        shown = ", ".join(map(str, places))
        count = f"{len(places)} or more" if at >= 0 else str(len(places))
        return f"the text occurs {count} times (lines {shown}); include more of the lines around it"
    crlf = piece.replace(b"\n", b"\r\n")
    if crlf != piece and found(content, crlf) >= 0:
        return r"the text does not occur (0 matches): the file ends its lines with \r\n"
    if len(content) <= _COMPARED_BYTES and b" ".join(piece.split()) in b" ".join(content.split()):
        return "the text does not occur (0 matches), only with other spaces or line breaks"
    return "the text does not occur (0 matches)"


def found(content: bytes, piece: bytes, start: int = 0) -> int:
    """Give the offset of a piece from ``start`` on, or -1: `bytes.find` in steps."""
    step = max(_STEP, len(piece))
    for at in range(start, len(content), step):
        place = content.find(piece, at, at + step + len(piece) - 1)
        if place >= 0:
            return place
    return -1
