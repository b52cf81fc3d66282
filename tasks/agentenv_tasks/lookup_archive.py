"""An archive of long files, and the trail of entries that leads through some of them.

Every entry either sends the reader on to another entry of another file, or closes a trail with a count. One trail is
asked for; all other entries look the same and lead elsewhere, some under codes that differ in two digits only.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

_ROOMS = (
    "harbour", "customs", "railway", "theatre", "gardens", "lighthouse", "brewery", "printing", "school", "market",
    "bridges", "weather",
)  # fmt: skip
_THINGS = ("maps", "letters", "ledgers", "plans", "photographs", "permits", "receipts", "drawings")
_KEEPERS = ("Brandt", "Okafor", "Lindqvist", "Moreau", "Tanaka", "Petrov", "Iyer", "Sandoval", "Novak", "Haddad")
_STATES = ("in fair order", "bound in grey linen", "partly water-stained", "sorted by year", "without a cover sheet")
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"

ENTRIES_PER_FILE = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One entry of the trail."""

    path: str
    code: str
    line: int
    """1-based, in its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The files and the one trail that is asked for."""

    files: dict[str, bytes]
    """Path to content; about 30 KB each."""
    trail: tuple[Stop, ...]
    count: int
    """What the last entry of the trail counts."""


def build_archive(rng: random.Random, *, hops: int, rooms: int) -> Archive:
    """Write an archive of ``rooms`` files whose trail has ``hops`` entries, each in a file of its own."""
    paths = [f"archive/{room}.txt" for room in rng.sample(_ROOMS, k=rooms)]
    codes = _distinct_codes(rng, hops)
    trail = tuple(
        Stop(path=path, code=code, line=rng.randint(12, ENTRIES_PER_FILE - 2))
        for path, code in zip(paths, codes, strict=False)
    )
    count = rng.randint(1_000, 9_999)
    files = {path: _file(rng, path, paths, trail, count) for path in sorted(paths)}
    return Archive(files=files, trail=trail, count=count)


def _file(rng: random.Random, path: str, paths: list[str], trail: tuple[Stop, ...], count: int) -> bytes:
    others = [other for other in paths if other != path]
    taken = {stop.code for stop in trail}
    codes = [code if code not in taken else _near(code, taken) for code in _codes(rng, ENTRIES_PER_FILE)]
    lines = _entries(rng, codes, _endings(rng, others, ENTRIES_PER_FILE))
    for index, stop in enumerate(trail):
        if stop.path == path:
            _lay(rng, lines, trail, index, count, others)
    return ("\n".join(lines) + "\n").encode()


def _lay(
    rng: random.Random, lines: list[str], trail: tuple[Stop, ...], index: int, count: int, others: list[str]
) -> None:
    """Put one entry of the trail into its file, and beside it two that could be taken for it."""
    stop = trail[index]
    if index + 1 < len(trail):
        following = trail[index + 1]
        ending = f"Continued under {following.code} in {following.path}."
    else:
        ending = f"Closed with {count} sheets."
    near = _near(stop.code, {other.code for other in trail})
    entry, near_entry, withdrawn = _entries(rng, [stop.code, near, stop.code], [ending, *_endings(rng, others, 2)])
    free = [line for line in range(ENTRIES_PER_FILE) if line != stop.line - 1]
    near_line, withdrawn_line = rng.sample(free, k=2)
    lines[stop.line - 1] = entry
    lines[near_line] = near_entry
    lines[withdrawn_line] = f"WITHDRAWN {withdrawn}"


def _entries(rng: random.Random, codes: list[str], endings: list[str]) -> list[str]:
    """Write entries; whole columns are drawn at once, which is several times as fast as one by one."""
    n = len(codes)
    columns = zip(
        codes,
        rng.choices(range(2, 91), k=n),
        rng.choices(_THINGS, k=n),
        rng.choices(_STATES, k=n),
        rng.choices(range(1871, 1970), k=n),
        rng.choices(_KEEPERS, k=n),
        endings,
        strict=True,
    )
    return [
        f"[{code}] {count} {things}, {state}, received {year} from {keeper}. {ending}"
        for code, count, things, state, year, keeper, ending in columns
    ]


def _endings(rng: random.Random, others: list[str], n: int) -> list[str]:
    closed = rng.choices((True, False, False, False, False), k=n)
    counts = rng.choices(range(1_000, 10_000), k=n)
    columns = zip(closed, counts, _codes(rng, n), rng.choices(others, k=n), strict=True)
    return [
        f"Closed with {count} sheets." if over else f"Continued under {code} in {path}."
        for over, count, code, path in columns
    ]


def _codes(rng: random.Random, n: int) -> list[str]:
    columns = zip(
        rng.choices(_LETTERS, k=n), rng.choices(_LETTERS, k=n), rng.choices(range(1_000, 10_000), k=n), strict=True
    )
    return [f"{first}{second}-{number}" for first, second, number in columns]


def _distinct_codes(rng: random.Random, n: int) -> list[str]:
    codes: list[str] = []
    while len(codes) < n:
        codes += [code for code in _codes(rng, 1) if code not in codes]
    return codes


def _near(code: str, taken: set[str]) -> str:
    """Swap two neighbouring digits that differ, or raise one digit: another code that looks the same."""
    digits = code[3:]
    for at in range(3):
        if digits[at] != digits[at + 1]:
            swapped = digits[:at] + digits[at + 1] + digits[at] + digits[at + 2 :]
            if swapped[0] != "0" and code[:3] + swapped not in taken:
                return code[:3] + swapped
    return code[:3] + digits[:3] + str((int(digits[3]) + 1) % 10)
