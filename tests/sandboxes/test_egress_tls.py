"""Whom a TLS client names: read from what real clients send, and from whatever else may come."""

from __future__ import annotations

import contextlib
import itertools
import ssl

import pytest
from agentenv.core.hosts import parse_rules
from agentenv.sandboxes.egress_request import Asked
from agentenv.sandboxes.egress_tls import UNRECOGNIZED_NAME, Hello, NotTls, read_hello
from agentenv.sandboxes.egress_tunnel import Closed, tunnelled
from hypothesis import given
from hypothesis import strategies as st


def hello(name: str | None, *, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """What this Python's TLS sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = newest
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


ALLOWED = hello("allowed.test")


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("name", "read"), [("allowed.test", "allowed.test"), ("A.b.ALLOWED.test", "a.b.allowed.test"), (None, None)]
)
def test_name_that_a_client_sends(name, read, newest):
    """Whatever comes after the message is not looked at."""
    assert read_hello(hello(name, newest=newest) + b"early") == Hello(read)


def records(message: bytes, ends: list[int]) -> bytes:
    """Put a handshake message into records that end there."""
    cuts = [0, *sorted({end for end in ends if 0 < end < len(message)}), len(message)]
    pieces = [message[begin:end] for begin, end in itertools.pairwise(cuts)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


@given(st.lists(st.integers(1, len(ALLOWED)), max_size=20))
def test_message_in_any_records_is_read_when_it_is_whole(ends):
    """read(records(m)) == read(m); read(p) is None for every proper beginning p."""
    sent = records(ALLOWED[5:], ends)
    assert read_hello(sent) == Hello("allowed.test")
    assert {read_hello(sent[:size]) for size in range(len(sent))} == {None}


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=100).map(lambda tail: ALLOWED[:60] + tail)))
def test_reading_is_total(data):
    """read(b) is a Hello, None or NotTls, for all b."""
    with contextlib.suppress(NotTls):
        assert read_hello(data) is None or isinstance(read_hello(data), Hello)


@given(st.integers(0, len(ALLOWED) - 1), st.integers(0, 255))
def test_damaged_messages_are_read_or_refused(at, byte):
    """read(m with one byte changed) is a Hello, None or NotTls."""
    damaged = ALLOWED[:at] + bytes((byte,)) + ALLOWED[at + 1 :]
    with contextlib.suppress(NotTls):
        assert read_hello(damaged) is None or isinstance(read_hello(damaged), Hello)


def with_extensions(*extensions: bytes) -> bytes:
    whole = b"".join(extensions)
    body = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + len(whole).to_bytes(2, "big") + whole
    message = b"\1" + len(body).to_bytes(3, "big") + body
    return records(message, [])


def names(*entries: bytes, kind: bytes = b"\0") -> bytes:
    listed = b"".join(kind + len(name).to_bytes(2, "big") + name for name in entries)
    content = len(listed).to_bytes(2, "big") + listed
    return b"\0\0" + len(content).to_bytes(2, "big") + content


def test_messages_as_the_standard_has_them():
    assert read_hello(with_extensions(b"\0\x2b\0\1\0", names(b"x.test"))) == Hello("x.test")
    assert read_hello(with_extensions(names(b"X.test."))) == Hello("x.test")
    assert read_hello(with_extensions()) == Hello(None)
    body = b"\3\3" + bytes(32) + b"\0\0\2\x13\1\1\0"  # before there were extensions
    assert read_hello(records(b"\1" + len(body).to_bytes(3, "big") + body, [])) == Hello(None)


@pytest.mark.parametrize(
    "sent",
    [
        with_extensions(names(b"allowed.test"), names(b"other.test")),
        with_extensions(names(b"allowed.test", b"other.test")),
        with_extensions(names(b"allowed.test", kind=b"\1")),
        with_extensions(names(b"")),
        with_extensions(names(b"\xff")),
        with_extensions(names()),
        with_extensions(names(b"allowed.test") + b"\0"),
        b"GET / HTTP/1.1",
        b"\x80\x2e\1\3\1",
        b"\x16\2",
        b"\x16\3\1\0\0",
        b"\x16\3\1\xff\xff",
        b"\x16\3\1\0\1\2",
        b"\x16\3\1\0\4\1\xff\xff\xff",
        b"\x16\3\1\0\1\1" + b"\x16\3\1\0\1\0" * 80,
    ],
)
def test_what_servers_may_read_in_another_way_is_refused(sent):
    """Two names, names of another kind, sizes that there are not, and what is no TLS at all."""
    with pytest.raises(NotTls):
        read_hello(sent)


class Sent:
    """A client that sends these pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    async def write(self, data: bytes) -> None:
        raise AssertionError(data)

    async def write_end(self) -> None:
        raise AssertionError("the end")


async def through(host: str, port: int, *pieces: bytes) -> bytes:
    rules = parse_rules(("allowed.test", "*.open.test", "192.0.2.1", "allowed.test:5432"))
    return b"".join([piece async for piece in tunnelled(Asked(host, port), b"", Sent(*pieces), rules)])


@pytest.mark.parametrize(
    ("host", "port", "sent"),
    [
        ("allowed.test", 443, ALLOWED),
        ("allowed.test", 443, hello("deep.open.test")),
        ("192.0.2.1", 443, hello(None)),
        ("192.0.2.1", 443, ALLOWED),
        ("allowed.test", 5432, ALLOWED),
        ("allowed.test", 5432, b"\0\0\0\x08\x04\xd2\x16\x2f"),
    ],
)
async def test_what_goes_through_a_tunnel(host, port, sent):
    """All of it, however it is cut: TLS for what is on the list, and what is no TLS where no web is."""
    for size in (7, 500, len(sent)):
        pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
        assert await through(host, port, *pieces, b"more") == sent + b"more"
    assert await through(host, port) == b""


@pytest.mark.parametrize(
    ("host", "port", "sent", "said"),
    [
        ("allowed.test", 443, hello("other.test"), UNRECOGNIZED_NAME),
        ("allowed.test", 443, hello(None), UNRECOGNIZED_NAME),
        ("192.0.2.1", 443, hello("other.test"), UNRECOGNIZED_NAME),
        ("allowed.test", 5432, hello("open.test"), UNRECOGNIZED_NAME),
        ("allowed.test", 5432, hello("deep.open.test"), UNRECOGNIZED_NAME),
        ("allowed.test", 443, ALLOWED[:-1], UNRECOGNIZED_NAME),
        ("allowed.test", 5432, b"\x16\3\1\0\0", UNRECOGNIZED_NAME),
        ("allowed.test", 443, b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", b"HTTP/1.1 403"),
        ("allowed.test", 80, b"\r\nGET / HTTP/1.1\r\nHost: other.test\r\n\r\n", b"HTTP/1.1 403"),
    ],
)
async def test_what_does_not(host, port, sent, said):
    """Not a byte of it reaches the host, and the client is told in its own language."""
    with pytest.raises(Closed) as closed:
        await through(host, port, sent)
    assert closed.value.args[0].startswith(said)


def test_alert_is_one_that_clients_understand():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    incoming = ssl.MemoryBIO()
    client = context.wrap_bio(incoming, ssl.MemoryBIO(), server_hostname="x.test")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    incoming.write(UNRECOGNIZED_NAME)
    with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
        client.do_handshake()
