"""What is kept of a stream."""

from __future__ import annotations

from agentenv.sandboxes.supervisor.capture import HeadTail
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.binary(max_size=40), max_size=60), st.integers(1, 64))
def test_both_ends_and_the_count_are_exact(chunks, limit):
    """Up to the limit all of it is head; beyond, head and tail are the stream's own ends and fill the limit."""
    kept = HeadTail(limit)
    for chunk in chunks:
        kept.add(chunk)
    whole = b"".join(chunks)
    head, tail = kept.parts()
    assert kept.total == len(whole)
    assert kept.overflowed == (len(whole) > limit)
    if len(whole) <= limit:
        assert (head, tail) == (whole, b"")
    else:
        assert len(head) + len(tail) == limit
        assert len(head) - len(tail) in {0, 1}
        assert whole.startswith(head)
        assert whole.endswith(tail)


def test_small_pieces_of_a_long_stream():
    """The tail is right however often it was trimmed, and memory stays near the limit."""
    kept = HeadTail(1000)
    for number in range(100_000):
        kept.add(b"%06d" % number)
    head, tail = kept.parts()
    assert head == b"".join(b"%06d" % n for n in range(100))[:500]
    assert tail == b"".join(b"%06d" % n for n in range(99_900, 100_000))[-500:]
