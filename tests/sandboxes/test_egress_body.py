"""The body of one request: passed on whole, framed anew, and nothing after it."""

from __future__ import annotations

import contextlib

import pytest
from agentenv.sandboxes.egress_body import BadBody, Framing, body
from hypothesis import given
from hypothesis import strategies as st

CHUNKED = Framing.of([], [b" chunked"])


async def carried(sent: bytes, framing: Framing, *, cut: int = 1 << 20) -> bytes:
    """What is passed on of bytes that come in pieces of this size."""
    pieces = [sent[at : at + cut] for at in range(0, len(sent), cut)]

    async def read() -> bytes:
        return pieces.pop(0) if pieces else b""

    return b"".join([piece async for piece in body(read, b"", framing)])


def unchunked(sent: bytes) -> bytes:
    """The content of what is written in the strictest form."""
    content = b""
    while True:
        size, _, sent = sent.partition(b"\r\n")
        length = int(size, 16)
        content, end, sent = content + sent[:length], sent[length : length + 2], sent[length + 2 :]
        assert end == b"\r\n"
        if not length:
            assert sent == b""
            return content


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.integers(1, 50))
async def test_chunks_are_passed_on_whole(chunks, cut):
    """unchunk(carried(chunked(b))) == b, however b is chunked and its bytes come."""
    sent = b"".join(b"%X;x=y\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"000\r\nTrailer: dropped\r\n\r\n"
    assert unchunked(await carried(sent, CHUNKED, cut=cut)) == b"".join(chunks)


@given(st.binary(max_size=200), st.integers(1, 50))
async def test_bodies_of_a_length_are_passed_on_whole(content, cut):
    """carried(b) == b; and with an empty line at its end, as old clients send it."""
    framing = Framing.of([b" %d" % len(content)], [])
    assert await carried(content, framing, cut=cut) == content
    assert await carried(content + b"\r\n", framing, cut=cut) == content


@given(st.binary(min_size=1, max_size=100).filter(lambda more: more.strip(b"\r\n")), st.integers(1, 50))
async def test_nothing_comes_after_a_body(more, cut):
    """carried(b + more) refuses, for every more that is not empty lines."""
    for sent, framing in (
        (b"", Framing.of([], [])),
        (b"abc", Framing.of([b"3"], [])),
        (b"3\r\nabc\r\n0\r\n\r\n", CHUNKED),
    ):
        with pytest.raises(BadBody, match="one request"):
            await carried(sent + more, framing, cut=cut)


@given(st.binary(max_size=200))
async def test_reading_chunks_is_total(sent):
    """carried(b) is bytes or BadBody, for all b."""
    with contextlib.suppress(BadBody):
        unchunked(await carried(sent, CHUNKED))


@pytest.mark.parametrize(
    "sent",
    [b"", b"3\r\nab", b"3\r\nabcd\r\n0\r\n\r\n", b"-1\r\n", b"0x3\r\nabc\r\n", b"\r\n", b"g\r\n", b"f" * 16 + b"\r\n",
     b"3\nabc\n0\n\n", b"0\r\nX: y\r\n", b"1" * 20_000, b"0\r\n" + b"X: y\r\n" * 1000],
)  # fmt: skip
async def test_chunks_that_are_none(sent):
    with pytest.raises(BadBody):
        await carried(sent, CHUNKED)


@pytest.mark.parametrize(
    ("lengths", "codings"),
    [
        ([b"3"], [b"chunked"]),
        ([b"3", b"3"], []),
        ([b"3,3"], []),
        ([b"+3"], []),
        ([b""], []),
        ([b"0x3"], []),
        ([b"1" * 19], []),
        ([], [b"gzip, chunked"]),
        ([], [b"chunked", b"chunked"]),
        ([], [b"identity"]),
        ([], [b"\x0bchunked"]),
    ],
)
def test_framings_that_servers_may_read_in_another_way(lengths, codings):
    with pytest.raises(BadBody):
        Framing.of(lengths, codings)


def test_framing_is_said_as_it_was():
    assert Framing.of([], []).fields == ()
    assert Framing.of([b"0"], []).fields == (b"Content-Length: 0",)
    assert Framing.of([b" 12\t"], []).fields == (b"Content-Length: 12",)
    assert Framing.of([], [b" Chunked "]).fields == (b"Transfer-Encoding: chunked",)
