"""What lies in SQLite's write-ahead log behind a place that does not add up.

SQLite reads the log up to the first frame whose sum is wrong and takes that for the end: where a writer died in the
middle of a frame, it is. Where a bit of the disk flipped, transactions lie behind it that were acknowledged, and the
next writer would write over them.

Source: the format is SQLite's, https://www.sqlite.org/fileformat2.html section 4.
"""

from __future__ import annotations

import struct
import sys
from array import array
from pathlib import Path

from agentenv.errors import DamagedJournal

_HEADER, _FRAME_HEADER = 32, 24
_MAGIC = 0x377F0682
"""Of a log whose sums are over little-endian words; one more where they are big-endian."""
_WORD = 0xFFFFFFFF


def require_whole_log(path: Path) -> None:
    """See that a journal's log, if there is one, has no transaction behind a place where SQLite stops reading.

    A writer may be at work: what it is just writing is no damage.

    Raises:
        DamagedJournal: It has; names the place.
    """
    log = path.with_name(path.name + "-wal")
    at = _damage(log)
    # What was caught in the middle of being written, or being begun anew, has changed by now.
    if at is not None and _damage(log) == at:
        raise DamagedJournal(
            f"{log} is damaged at byte {at}: facts that were acknowledged lie behind it, and SQLite reads up to there. "
            f"Restore the run from a copy; or go on without those facts: `truncate -s {at} {log}`."
        )


def _damage(log: Path) -> int | None:
    """Give the place of the first frame that does not add up, if a later one ends a transaction; 0 for the header."""
    try:
        content = log.read_bytes()
    except OSError:
        return None  # none, or none that SQLite can read either
    if len(content) <= _HEADER:
        return None
    magic, _, page, _, salts, *expected = struct.unpack_from(">IIII8sII", content)
    swap = bool(magic & 1) != (sys.byteorder == "big")
    sums = _added((0, 0), content[:24], swap=swap)
    if magic & ~1 != _MAGIC or sums != tuple(expected):
        return 0
    frames = range(_HEADER, len(content) - _FRAME_HEADER - page + 1, _FRAME_HEADER + page)
    for at in frames:
        number, _, found, *expected = struct.unpack_from(">II8sII", content, at)
        body = content[at : at + 8] + content[at + _FRAME_HEADER : at + _FRAME_HEADER + page]
        sums = _added(sums, body, swap=swap)
        if found != salts or number == 0 or sums != tuple(expected):
            rest = frames[frames.index(at) + 1 :]
            return at if any(_ends_transaction(content, later, salts) for later in rest) else None
    return None


def _ends_transaction(content: bytes, at: int, salts: bytes) -> bool:
    """Whether a frame of this log, not of an older one in the same place, ends a transaction."""
    _, pages, found = struct.unpack_from(">II8s", content, at)
    return bool(pages) and found == salts


def _added(sums: tuple[int, int], data: bytes, *, swap: bool) -> tuple[int, int]:
    first, second = sums
    words = array("I", data)
    if swap:
        words.byteswap()
    pairs = iter(words)
    for even, odd in zip(pairs, pairs, strict=True):
        first = (first + even + second) & _WORD
        second = (second + odd + first) & _WORD
    return first, second
