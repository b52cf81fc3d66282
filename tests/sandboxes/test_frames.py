"""The codec between harness and supervisor."""

from __future__ import annotations

import pytest
from agentenv.sandboxes.supervisor.frames import (
    MAX_HEADER,
    MAX_PAYLOAD,
    PREFIX,
    FrameError,
    decode,
    encode,
    number,
    sizes,
    text,
    texts,
)
from hypothesis import given
from hypothesis import strategies as st

numbers = st.integers(-(2**63), 2**63 - 1)
values = st.one_of(numbers, st.binary(max_size=50), st.lists(st.binary(max_size=20), max_size=5))
headers = st.dictionaries(st.text(max_size=10), values, max_size=6)


@given(headers, st.binary(max_size=300))
def test_frames_come_back_as_they_were(fields, payload):
    """decode(encode(f, p)) == (f, p)."""
    frame = encode(fields, payload)
    header, content = sizes(frame[:PREFIX])
    assert len(frame) == PREFIX + header + content
    assert decode(frame[PREFIX : PREFIX + header]) == fields
    assert frame[PREFIX + header :] == payload


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(data):
    """No input raises anything but FrameError."""
    try:
        fields = decode(data)
    except FrameError:
        return
    assert isinstance(fields, dict)


@given(headers, st.data())
def test_damaged_headers_decode_or_are_refused(fields, data):
    """Nor does a header with one byte changed, or cut."""
    frame = encode(fields)
    header = bytearray(frame[PREFIX:])
    if header:
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(header[: data.draw(st.integers(0, len(header)))]))
    except FrameError:
        return


@pytest.mark.parametrize("prefix", [(MAX_HEADER + 1, 0), (0, MAX_PAYLOAD + 1), (2**32 - 1, 2**32 - 1)])
def test_sizes_over_the_limit_are_refused(prefix):
    """Before anything is read."""
    with pytest.raises(FrameError, match="over"):
        sizes(prefix[0].to_bytes(4, "big") + prefix[1].to_bytes(4, "big"))


def test_oversized_frames_are_not_made():
    with pytest.raises(FrameError, match="limit"):
        encode({"id": 1}, bytes(MAX_PAYLOAD + 1))
    with pytest.raises(FrameError, match="limit"):
        encode({"id": bytes(MAX_HEADER)})


def test_fields_of_the_wrong_kind_are_refused():
    fields = {"n": 1, "t": b"x", "l": [b"y"]}
    assert (number(fields, "n"), text(fields, "t"), texts(fields, "l")) == (1, b"x", [b"y"])
    for read, name in ((number, "t"), (text, "n"), (texts, "t"), (number, "none")):
        with pytest.raises(FrameError, match=name):
            read(fields, name)
