"""The small HTTP client against a server that says exactly what a test wants, byte for byte.

Promises: an answer is read whole however it is framed; a connection serves again only if nothing is left on it; what
goes wrong is one of two exceptions; and a call that is given up leaves no connection behind.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

import pytest
from agentenv.errors import ConfigError, OrderError
from agentenv.policies.http_client import Address, Answer, HttpClient, NotHttp, base_url, read_address
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.tls import CERTIFICATE, serving_https

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HANG: list[bytes] = []


class Server:
    """Answers each request with the next of its scripted answers, piece by piece; one without pieces hangs."""

    def __init__(self, answers: Sequence[Sequence[bytes]], *, then_close: bool) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.at_once = self.most_at_once = 0
        self.handlers: list[asyncio.Task[None]] = []
        self._answers = list(answers)
        self._then_close = then_close

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.handlers.append(asyncio.ensure_future(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self._one(reader, writer):
                pass
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        lengths = [line[15:] for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")]
        self.requests.append(head + await reader.readexactly(int(lengths[0]) if lengths else 0))
        answer = self._answers.pop(0) if self._answers else [OK]
        await asyncio.sleep(0)
        self.at_once -= 1
        if not answer:
            await reader.read()
            return False
        for piece in answer:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        return not self._then_close


@asynccontextmanager
async def talking(
    *answers: bytes | Sequence[bytes], then_close: bool = False, max_connections: int = 8, idle_s: float = 60.0
) -> AsyncGenerator[tuple[Server, HttpClient]]:
    whole = [[answer] if isinstance(answer, bytes) else answer for answer in answers]
    server = Server(whole, then_close=then_close)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        address = read_address(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        client = HttpClient(address, headers={"X-Mark": "m"}, max_connections=max_connections, idle_s=idle_s)
        try:
            yield server, client
        finally:
            await client.aclose()
            await asyncio.gather(*server.handlers)


async def test_a_request_is_written_as_asked_and_its_connection_serves_again() -> None:
    async with talking() as (server, client):
        assert await client.request("POST", "/a", b"body") == Answer(200, b"ok")
        assert await client.request("GET", "/b", None) == Answer(200, b"ok")
        host = server.requests[0].split(b"\r\n")[1]
        assert host.startswith(b"Host: 127.0.0.1:")
        assert server.requests == [
            b"POST /a HTTP/1.1\r\n%b\r\nX-Mark: m\r\nContent-Length: 4\r\n\r\nbody" % host,
            b"GET /b HTTP/1.1\r\n%b\r\nX-Mark: m\r\n\r\n" % host,
        ]
        assert server.connections == 1


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: t\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (CHUNKED, Answer(200, b"abcde")),
        (INTERIM, Answer(200, b"ok")),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Answer(204, b"")),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", Answer(503, b"")),
        (b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", Answer(302, b"")),
    ],
)
async def test_every_framing_is_read_whole(answer: bytes, expected: Answer) -> None:
    async with talking(answer) as (server, client):
        assert await client.request("POST", "/", b"x") == expected
        assert await client.request("POST", "/", b"x") == Answer(200, b"ok")
        assert server.connections == 1


@given(cuts=st.lists(st.integers(0, len(INTERIM)), max_size=6), chunked=st.booleans())
def test_where_the_network_cuts_an_answer_does_not_matter(cuts: list[int], chunked: bool) -> None:
    """Any split of the bytes gives the same answer."""
    whole = CHUNKED if chunked else INTERIM
    bounds = [0, *sorted(cuts), len(whole)]

    async def play() -> Answer:
        async with talking([whole[start:end] for start, end in pairwise(bounds)]) as (_, client):
            return await client.request("GET", "/", None)

    assert asyncio.run(play()) == Answer(200, b"abcde" if chunked else b"ok")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
async def test_a_connection_the_server_will_close_is_not_used_again(answer: bytes) -> None:
    async with talking(answer) as (server, client):
        assert await client.request("GET", "/", None) == Answer(200, b"ok")
        assert await client.request("GET", "/", None) == Answer(200, b"ok")
        assert server.connections == 2


async def test_an_answer_that_ends_with_its_connection() -> None:
    async with talking(b"HTTP/1.1 200 OK\r\n\r\nall there is", then_close=True) as (_, client):
        assert await client.request("GET", "/", None) == Answer(200, b"all there is")


async def test_what_nobody_asked_for_ends_the_connection() -> None:
    """A second answer to one request must never be taken for that of the next."""
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    async with talking(OK + forged) as (server, client):
        assert await client.request("GET", "/", None) == Answer(200, b"ok")
        assert await client.request("GET", "/", None) == Answer(200, b"ok")
        assert server.connections == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", NotHttp),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", NotHttp),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", NotHttp),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", NotHttp),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", ConnectionResetError),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal", ConnectionResetError),
        (b"HTTP/1.1 200", ConnectionResetError),
    ],
)
async def test_broken_answers_are_errors_and_the_next_call_works(answer: bytes, error: type[Exception]) -> None:
    async with talking(answer, then_close=True) as (server, client):
        with pytest.raises(error):
            await client.request("GET", "/", None)
        assert await client.request("GET", "/", None) == Answer(200, b"ok")
        assert server.connections == 2


async def test_a_cancelled_request_closes_its_connection() -> None:
    async with talking(HANG) as (server, client):
        call = asyncio.ensure_future(client.request("GET", "/", None))
        while not server.requests:
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        await asyncio.wait_for(server.handlers[0], 10)
        assert await client.request("GET", "/", None) == Answer(200, b"ok")


async def test_a_connection_that_idled_too_long_is_not_used_again() -> None:
    async with talking(idle_s=0.0) as (server, client):
        for _ in range(3):
            assert await client.request("GET", "/", None) == Answer(200, b"ok")
        assert server.connections == 3


async def test_connections_are_bounded_and_everyone_gets_a_turn() -> None:
    async with talking(max_connections=3) as (server, client):
        answers = await asyncio.gather(*(client.request("GET", "/", None) for _ in range(20)))
        assert answers == [Answer(200, b"ok")] * 20
        assert server.connections == server.most_at_once == 3


async def test_a_turn_that_is_given_up_goes_to_the_next() -> None:
    """Whoever is cancelled, waiting, handed over to, or under way, leaves the connection to those behind."""
    for given_up in range(4):
        async with talking(max_connections=1) as (_, client):
            calls = [asyncio.ensure_future(client.request("GET", "/", None)) for _ in range(4)]
            while not calls[0].done() if given_up else False:
                await asyncio.sleep(0)
            calls[given_up].cancel()
            others = await asyncio.gather(*(call for call in calls if call is not calls[given_up]))
            assert others == [Answer(200, b"ok")] * 3
            assert await client.request("GET", "/", None) == Answer(200, b"ok")


async def test_closing_ends_what_is_under_way() -> None:
    async with talking(HANG) as (server, client):
        call = asyncio.ensure_future(client.request("GET", "/", None))
        while not server.requests:
            await asyncio.sleep(0)
        await client.aclose()
        await client.aclose()
        with pytest.raises(ConnectionResetError):
            await call
        with pytest.raises(OrderError):
            await client.request("GET", "/", None)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h", Address("h", 80, False, "h", "")),
        ("https://h:8443/sub/path/", Address("h", 8443, True, "h:8443", "/sub/path")),
        ("http://[::1]:8000", Address("::1", 8000, False, "[::1]:8000", "")),
        ("http://bücher.example", Address("bücher.example", 80, False, "xn--bcher-kva.example", "")),
    ],
)
def test_addresses(url: str, expected: Address) -> None:
    assert read_address(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:80",
        "ftp://h",
        "http://",
        "http://h:x",
        "http://h:99999",
        "http://u:p@h",
        "http://h?q",
        f"http://{'x' * 64}",
    ],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        read_address(url)


@pytest.mark.parametrize(
    ("pasted", "meant"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/", "http://localhost:8000"),
        ("http://localhost:8000//", "http://localhost:8000"),
        (" http://localhost:8000/v1\n", "http://localhost:8000"),
        ("http://localhost:8000/v1/", "http://localhost:8000"),
        ("localhost:8000", "http://localhost:8000"),
        ("localhost:8000/v1", "http://localhost:8000"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("https-cache.example:80", "http://https-cache.example:80"),
        ("https://api.example.com/v1/chat/completions", "https://api.example.com"),
        ("https://example.com/api/v1/completions/", "https://example.com/api"),
        ("http://h/v1/models", "http://h"),
        ("http://h/v1beta", "http://h/v1beta"),
    ],
)
def test_what_users_paste_is_understood_where_it_can_mean_one_thing(pasted: str, meant: str) -> None:
    assert base_url(pasted) == meant
    assert base_url(meant) == meant
    read_address(meant)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("example.com", "give it as http://example.com or https://example.com, with :PORT where"),
        ("example.com:443", "give it as http://example.com:443 or https://example.com:443"),
        ("http:/localhost:8000", "give it as http://localhost:8000."),
        ("http//localhost:8000", "give it as http://localhost:8000."),
        ("https:localhost:8000", "give it as https://localhost:8000."),
        ("8000", "give it as http://HOST:PORT"),
        (":8000", "give it as http://HOST:PORT"),
        ("a b:80", "give it as http://HOST:PORT"),
        ("", "give it as http://HOST:PORT"),
        ("u:p@h:80", "holds a name or password"),
    ],
)
def test_what_can_mean_two_things_is_asked_for_again(given: str, says: str) -> None:
    """With what to write, made from what was given."""
    with pytest.raises(ConfigError) as refused:
        base_url(given)
    assert says in str(refused.value)


@pytest.mark.parametrize("url", ["http://", "ftp://x", "http:///v1"])
def test_a_scheme_is_not_enough(url: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        read_address(base_url(url))


@given(url=st.text("htps:/.[]1v@ ?#a", max_size=14))
def test_any_text_is_an_address_or_refused(url: str) -> None:
    """And what comes out is its own base address."""
    try:
        base = base_url(url)
        read_address(base)
    except ConfigError:
        return
    assert base_url(base) == base


async def ask_over_https() -> Answer:
    with serving_https(b"ok") as url:
        client = HttpClient(read_address(url), headers={}, max_connections=1, idle_s=1.0)
        try:
            return await client.request("GET", "/", None)
        finally:
            await client.aclose()


async def test_https_takes_the_certificates_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    assert await ask_over_https() == Answer(200, b"ok")


async def test_a_certificate_that_nobody_vouches_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate"):
        await ask_over_https()


@pytest.mark.parametrize("key", ["a\r\nX-Injected: 1", "a\n", "schlüssel"])
def test_a_header_that_cannot_be_sent_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="API key"):
        HttpClient(read_address("http://h"), headers={"Authorization": key}, max_connections=1, idle_s=1.0)
