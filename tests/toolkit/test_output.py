"""Output shown to the policy: representable, bounded, honest about what is left out.

Promises: never over the cap; valid UTF-8 without control characters or surrogates; head and tail preserved;
head + left out + tail = the whole; the whole is kept under its hash.
"""

from __future__ import annotations

import json
import math
import re

import pytest
from agentenv.core.sandbox import Output
from agentenv.errors import HarnessFault
from agentenv.records.messages import Spill
from agentenv.toolkit.off_loop import PIECE
from agentenv.toolkit.output import decode, excerpt, fit, json_value, visible
from hypothesis import given
from hypothesis import strategies as st

from tests.toolkit.kit import InMemoryBlobs

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=400) | st.text(
    "a\x00é\ud800\udcff€😀\n", max_size=400
)
UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
MARKER = re.compile(r"\n\[\.\.\. ([\d,]+) bytes[^\n]*\.\.\.\]\n")


@given(text=ANY_TEXT)
def test_visible_text_is_representable_and_stays_the_same(text: str) -> None:
    """Law: the visible form is valid UTF-8 without odd characters, and its own visible form."""
    safe = visible(text)
    assert UNSAFE.search(safe) is None
    assert safe.encode().decode() == safe
    assert visible(safe) == safe


@given(data=st.binary(max_size=300))
def test_decoded_bytes_are_representable(data: bytes) -> None:
    """Law: any bytes have a visible form."""
    assert UNSAFE.search(decode(data)) is None


@given(text=st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_ordinary_text_is_untouched(text: str) -> None:
    """Law: text without odd characters is its own visible form, encoded or not."""
    assert visible(text) == text
    assert decode(text.encode()) == text


@given(data=st.binary(max_size=9) | st.text(max_size=4).map(str.encode), before=st.integers(0, 9))
def test_pieces_in_which_a_long_text_is_gone_through_leave_no_trace(data: bytes, before: int) -> None:
    """Law: the visible form of a long text is that of its parts, wherever the pieces it is made in meet."""
    long = b"x" * (PIECE - before)
    assert decode(long + data + long) == long.decode() + decode(data) + long.decode()
    text = data.decode("utf-8", "surrogateescape")
    assert visible(long.decode() + text) == long.decode() + visible(text)


def test_escapes_name_the_character() -> None:
    assert visible("a\x00b\x1b[0m\ud800\udcff\x85\tc\r\n") == "a\\x00b\\x1b[0m\\ud800\\xff\\x85\tc\r\n"
    assert decode(b"\xff\x00ok\xc3") == "\\xff\\x00ok\\xc3"


@given(text=ANY_TEXT, cap=st.integers(0, 600))
def test_fitted_text_keeps_the_laws(text: str, cap: int) -> None:
    """Law: never over the cap; head + left out + tail = the whole; the whole is kept; the marker counts right."""
    blobs = InMemoryBlobs()
    fitted = fit(text, cap, blobs)
    shown, whole = fitted.text.encode(), visible(text).encode()
    assert len(shown) <= cap
    assert UNSAFE.search(fitted.text) is None
    if fitted.spill is None:
        assert fitted == (visible(text), 0, None)
        return
    assert blobs.contents[fitted.spill.sha256] == whole
    assert fitted.dropped_bytes > 0
    if cap >= 300:
        counts = [match for match in MARKER.finditer(fitted.text) if _count(match) == fitted.dropped_bytes]
        assert any(
            whole.startswith(fitted.text[: match.start()].encode())
            and whole.endswith(fitted.text[match.end() :].encode())
            and len(whole) == len(shown) - len(match[0].encode()) + fitted.dropped_bytes
            for match in counts
        )


def _count(match: re.Match[str]) -> int:
    return int(match[1].replace(",", ""))


@given(size=st.integers(301, 5_000), cap=st.integers(300, 400))
def test_head_and_tail_have_equal_shares(size: int, cap: int) -> None:
    """Law: both ends are shown, none smaller than a quarter of the cap."""
    text = "".join(chr(ord("a") + n % 26) for n in range(size + 100))
    match = MARKER.search(fit(text, cap, InMemoryBlobs()).text)
    assert match is not None
    shown = match.string
    assert match.start() >= cap // 4
    assert len(shown) - match.end() >= cap // 4
    assert abs(match.start() - (len(shown) - match.end())) <= 1


def test_exact_fit_is_not_cut() -> None:
    assert fit("é" * 50, 100, InMemoryBlobs()) == ("é" * 50, 0, None)
    assert fit("é" * 50, 99, InMemoryBlobs()).spill is not None


def test_ten_megabyte_line_is_cut_and_kept_in_pieces() -> None:
    """A flood without a newline is cut like any other, odd characters and all."""
    text = "\x00€\udcff" * 1_000_000
    blobs = InMemoryBlobs()
    fitted = fit(text, 1_000, blobs)
    assert fitted.spill is not None
    assert fitted.spill.size_bytes == (4 + 3 + 4) * 1_000_000
    assert len(fitted.text.encode()) <= 1_000
    assert fitted.text.startswith("\\x00€\\xff\\x00")
    assert fitted.text.endswith("\\x00€\\xff")


def test_what_is_already_kept_is_not_stored_again() -> None:
    blobs, kept = InMemoryBlobs(), Spill(sha256="ab", size_bytes=123_456)
    fitted = fit("x" * 5_000, 1_000, blobs, kept)
    assert fitted.spill is kept
    assert blobs.contents == {}
    assert "123,456 bytes is kept" in fitted.text


def test_full_disk_is_a_fault_and_leaves_no_writer() -> None:
    blobs = InMemoryBlobs(fail=True)
    with pytest.raises(HarnessFault):
        fit("x" * 5_000, 1_000, blobs)
    assert blobs.unfinished == 0


@given(data=st.binary(max_size=200) | ANY_TEXT.map(lambda text: text.encode(errors="replace")), at=st.integers(0, 200))
def test_excerpt_of_a_gap_counts_every_byte(data: bytes, at: int) -> None:
    """Law: bytes before the gap + in it + after it = the stream."""
    head, tail = data[:at], data[at:]
    text, dropped = excerpt(Output(head=head, tail=tail, total_bytes=len(data) + 1_000))
    before, after = text.split("\n[... ", 1)[0], text.rsplit(" ...]\n", 1)[1]
    assert decode(head).startswith(before) or decode(head) == before
    assert decode(tail).endswith(after)
    assert 1_000 <= dropped <= 1_006
    assert UNSAFE.search(text) is None


def test_excerpt_without_gap_is_the_stream() -> None:
    assert excerpt(Output(head="€".encode()[:2], tail="€".encode()[2:], total_bytes=3)) == ("€", 0)


def test_excerpt_leaves_out_characters_broken_by_the_gap() -> None:
    text, dropped = excerpt(Output(head=b"ab\xe2\x82", tail=b"\x82\xaccd", total_bytes=100))
    assert (text, dropped) == ("ab\n[... 96 bytes left out here ...]\ncd", 96)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(value=JSON)
def test_json_value_is_the_same_for_every_reader(value: object) -> None:
    """Law: what is handed over equals what JSON in UTF-8 brings back."""
    safe = json_value(value)
    assert json.loads(json.dumps(safe, ensure_ascii=False, allow_nan=False).encode()) == safe


def test_json_value_keeps_what_json_can_carry_and_spells_out_the_rest() -> None:
    assert json_value({"a": [1, 2.5, None, True, "é"]}) == {"a": [1, 2.5, None, True, "é"]}
    assert json_value([2**70, math.inf, "\ud800"]) == [str(2**70), "inf", "\\ud800"]
    with pytest.raises(TypeError):
        json_value(object())
