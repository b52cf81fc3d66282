"""Files of megabytes are gone through in steps: what comes out is what one step would have given."""

from __future__ import annotations

from agentenv.toolkit.output import visible
from hypothesis import given
from hypothesis import strategies as st

from agentenv_tools.file_texts import found, lines_of, not_once

STEP = 1 << 16
LONG = {"A LONG LINE": b"x" * (STEP - 3), "MANY LINES": b"\n" * (STEP - 1), "A LONG PIECE": b"x" * (STEP + 5)}
"""What stands for them in an example: hypothesis complains of those that take pages to print."""
CONTENTS = st.lists(
    st.sampled_from([b"a", b"b", b" ", b"\n", b"\r\n", b"\xff", b"ab\n" * 7, "A LONG LINE", "MANY LINES"]), max_size=12
)
PIECES = st.text("abx \n", min_size=1, max_size=4).map(str.encode) | st.just("A LONG PIECE")


def whole(*parts: bytes | str) -> bytes:
    return b"".join(LONG[part] if isinstance(part, str) else part for part in parts)


@given(parts=CONTENTS, first=st.integers(1, 9) | st.integers(STEP, 2 * STEP), count=st.none() | st.integers(0, 9))
def test_lines_are_those_of_the_whole(parts: list[bytes | str], first: int, count: int | None) -> None:
    """Law: with room, lines ``first`` to ``last`` are what splitting the whole gives."""
    content = whole(*parts)
    lines = content.removesuffix(b"\n").decode("utf-8", "surrogateescape").split("\n")
    last = None if count is None else first + count - 1
    part = lines_of(content, first, last, 10 * len(content) + 1)
    assert part.total == len(lines)
    assert part.shown == lines[first - 1 : last]
    assert part.wanted == len(part.shown)


@given(parts=CONTENTS, room=st.integers(0, 20))
def test_lines_fit(parts: list[bytes | str], room: int) -> None:
    """Law: what is shown fits, or is a single line; and it is the longest beginning that does."""
    part = lines_of(whole(*parts), 1, None, room)
    sizes = [len(visible(line).encode()) + 1 for line in part.shown]
    assert len(part.shown) == 1 or sum(sizes) <= room
    assert 1 <= len(part.shown) <= part.wanted == part.total


@given(parts=CONTENTS, piece=PIECES, start=st.integers(0, 2 * STEP))
def test_pieces_are_found_where_they_are(parts: list[bytes | str], piece: bytes | str, start: int) -> None:
    """Law: a search in steps gives what one in the whole gives."""
    content = whole(*parts)
    assert found(content, whole(piece), start) == content.find(whole(piece), start)


@given(
    before=st.text("ab \n", max_size=8),
    piece=st.text("ab \n", min_size=1, max_size=3),
    after=st.text("ab \n", max_size=8),
    far=st.sampled_from([b"", "A LONG LINE", "MANY LINES"]),
)
def test_uniqueness_counts_overlaps(before: str, piece: str, after: str, far: bytes | str) -> None:
    """Law: a piece may be replaced exactly if there is one position at which it stands; else the lines are told."""
    content = before + whole(far).decode() + piece + after
    places = [at for at in range(len(content)) if content.startswith(piece, at)]
    problem = not_once(content.encode(), piece.encode())
    assert (problem == "") == (len(places) == 1)
    if 1 < len(places) < 20:
        lines = ", ".join(str(content.count("\n", 0, at) + 1) for at in places)
        assert f"occurs {len(places)} times (lines {lines})" in problem
