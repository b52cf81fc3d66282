"""``http``: only what was listed, only public addresses, only so much and so long, and no word of the harness's.

The servers are real, on loopback; a resolver of the tests' own leads made-up names to them.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import ssl
from collections.abc import AsyncIterator
from encodings.aliases import aliases as ALIASES
from typing import Any

import pytest
from agentenv.core.hosts import Address
from agentenv.core.tool import ToolContext
from agentenv.errors import ConfigError
from agentenv.records.axes import CallStatus
from agentenv.records.messages import ToolResult
from agentenv.toolkit import FunctionTool, Toolbox
from hypothesis import given
from hypothesis import strategies as st

from agentenv_tools.http import SAFE_METHODS, http, http_tool
from agentenv_tools.http_exchange import Reply
from agentenv_tools.http_shown import shown
from tests.policies.tls import CERTIFICATE
from tests.toolkit.kit import NO_DEADLINE, InMemoryBlobs, call_one, calls_of, make_context
from tests.tools.web import Server, answer, anywhere, serving, to_loopback


@pytest.fixture
async def context() -> AsyncIterator[ToolContext]:
    made = make_context()
    async with made.resources:
        yield made


async def ask(tool: FunctionTool, context: ToolContext, url: str, **arguments: Any) -> ToolResult:
    return await call_one(tool, context, url=url, **arguments)


async def test_text_comes_with_its_status_and_what_is_known_of_it(context: ToolContext) -> None:
    async with serving(
        lambda _: answer("grüße".encode("latin-1"), "Content-Type: text/plain; charset=latin-1")
    ) as server:
        url = f"http://a.test:{server.port}/x?q=1"
        result = await ask(server.tool(), context, url)
    assert result.status is CallStatus.OK
    assert result.text == "200 OK\ncontent-type: text/plain; charset=latin-1\ncontent-length: 5\n\ngrüße"
    body = "grüße".encode("latin-1")
    assert result.value == {"status": 200, "url": url, "bytes": 5, "sha256": hashlib.sha256(body).hexdigest()}
    head = server.requests[0].decode().lower()
    assert head.startswith("get /x?q=1 http/1.1\r\n")
    assert f"host: a.test:{server.port}\r\n" in head
    assert "accept-encoding: identity" in head
    assert "python" not in head


async def test_what_is_sent_arrives(context: ToolContext) -> None:
    async with serving(lambda _: answer(b"", status="404 Not Found")) as server:
        url = f"http://a.test:{server.port}/"
        result = await ask(server.tool(), context, url, method="post", headers={"X-Mine": "1"}, body="é")
    assert (result.status, result.text) == (CallStatus.OK, "404 Not Found\ncontent-length: 0\n\n[no body]")
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST / HTTP/1.1\r\n")
    assert b"x-mine: 1" in head
    assert body == "é".encode()


async def test_without_hosts_it_refuses_and_says_what_to_do(context: ToolContext) -> None:
    result = await ask(http, context, "https://example.org/")
    assert result.status is CallStatus.UNAVAILABLE
    assert 'http_tool("example.org")' in result.text
    assert "No host can be reached" in http.spec.description


async def test_hosts_that_are_not_listed_are_refused_before_anything_is_looked_up(context: ToolContext) -> None:
    async def never(host: str, port: int) -> list[str]:
        raise AssertionError(host)

    tool = http_tool("example.org", "*.example.com:8443", resolve=never)
    for url in (
        "https://example.net/",
        "https://sub.example.org/",
        "https://example.org:8443/",
        "https://example.com:8443/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://2130706433/",
    ):
        result = await ask(tool, context, url)
        assert result.status is CallStatus.ERROR
        assert "is not on the list of hosts, which is: example.org:80|443, *.example.com:8443" in result.text


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "0.0.0.0",
        "::1",
        "fe80::1",
        "fc00::1",
        "::ffff:127.0.0.1",
    ],
)
async def test_names_that_lead_to_private_addresses_are_refused(context: ToolContext, address: str) -> None:
    async def leads(host: str, port: int) -> list[str]:
        return [address]

    result = await ask(http_tool("example.org", resolve=leads), context, "http://example.org/")
    assert result.status is CallStatus.ERROR
    assert result.text == "Error: this may not be reached: example.org has no public address."
    listed = f"[{address}]" if ":" in address else address
    result = await ask(http_tool(listed), context, f"http://{listed}/")
    assert "has no public address" in result.text


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(context: ToolContext) -> None:
    """A name is looked up once per request: a second answer cannot lead elsewhere."""
    asked: list[str] = []

    async def once(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["192.0.2.1", "127.0.0.1"]

    def only_loopback(address: Address) -> bool:
        return address == ipaddress.ip_address("127.0.0.1")

    async with serving(lambda _: answer(b"ok")) as server:
        tool = server.tool(resolve=once, may_connect=only_loopback)
        result = await ask(tool, context, f"http://a.test:{server.port}/")
    assert result.text.endswith("ok")
    assert asked == ["a.test"]


async def test_redirects_are_followed_to_listed_hosts_alone(context: ToolContext) -> None:
    def redirect(request: bytes) -> bytes:
        path = request.split(b" ")[1].decode()
        to = {"/": "/one", "/one": f"http://b.test:{port}/two", "/out": f"http://evil.test:{port}/"}.get(path)
        return answer(b"", f"Location: {to}", status="302 Found") if to else answer(b"there")

    async with serving(redirect) as server:
        port = server.port
        tool = server.tool("a.test", "b.test")
        secret = {"Authorization": "secret", "X-Other": "kept"}
        result = await ask(tool, context, f"http://a.test:{port}/", method="POST", body="x", headers=secret)
        assert f"url: http://b.test:{port}/two" in result.text
        assert result.text.endswith("there")
        lines = [request.split(b"\r\n")[0] for request in server.requests]
        assert lines == [b"POST / HTTP/1.1", b"GET /one HTTP/1.1", b"GET /two HTTP/1.1"]
        assert [b"authorization: secret" in request for request in server.requests] == [True, True, False]
        assert b"x-other: kept" in server.requests[2]
        refused = await ask(tool, context, f"http://a.test:{port}/out")
        assert refused.status is CallStatus.ERROR
        assert f"evil.test:{port} is not on the list of hosts" in refused.text


async def test_redirects_that_go_round_end(context: ToolContext) -> None:
    async with serving(lambda _: answer(b"", "Location: /", status="307 Temporary Redirect")) as server:
        result = await ask(server.tool(), context, f"http://a.test:{server.port}/")
        assert len(server.requests) == 6
    assert result.status is CallStatus.ERROR
    assert "more than 5 redirects" in result.text


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://[", "http://a.test:x/", "http://me:pw@a.test/"])
async def test_a_redirect_to_a_file_or_nowhere_is_told(context: ToolContext, location: str) -> None:
    """As the server's error: nothing was wrong with the arguments."""
    async with serving(lambda _: answer(b"", f"Location: {location}", status="302 Found")) as server:
        result = await ask(server.tool(), context, f"http://a.test:{server.port}/")
    assert result.status is CallStatus.ERROR
    assert "a redirect leads to what is no address" in result.text


async def test_a_body_is_read_up_to_its_limit_and_no_further(context: ToolContext) -> None:
    def endless(_: bytes) -> list[bytes]:
        return [b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n", *([b"x" * 65536] * 1600)]

    async with serving(endless) as server:
        result = await ask(server.tool(max_bytes=1000), context, f"http://a.test:{server.port}/")
    assert result.text.endswith("x" * 1000 + "\n[cut after 1,000 bytes of 100,000,000]")
    assert result.bytes_dropped == 100_000_000 - 1000
    assert result.value["bytes"] == 1000


async def test_a_character_broken_by_the_limit_is_left_out(context: ToolContext) -> None:
    async with serving(lambda _: answer("ééé".encode())) as server:
        result = await ask(server.tool(max_bytes=3), context, f"http://a.test:{server.port}/")
    assert "\n\né\n[cut after 3 bytes of 6]" in result.text


async def test_bytes_are_described_and_kept(context: ToolContext) -> None:
    body = b"\x89PNG\r\n\x1a\n\0\xff"
    async with serving(lambda _: answer(body, "Content-Type: image/png")) as server:
        result = await ask(server.tool(), context, f"http://a.test:{server.port}/")
    blobs = context.blobs
    assert isinstance(blobs, InMemoryBlobs)
    assert result.full_output is not None
    assert blobs.contents[result.full_output.sha256] == body
    assert "content-type: image/png" in result.text
    assert f"[10 bytes that are no text, kept on record; sha256 {result.full_output.sha256}]" in result.text


async def test_text_over_the_cap_is_kept_whole(context: ToolContext) -> None:
    async with serving(lambda _: answer(b"y" * 50_000)) as server:
        result = await ask(server.tool(), context, f"http://a.test:{server.port}/")
    blobs = context.blobs
    assert isinstance(blobs, InMemoryBlobs)
    assert len(result.text.encode()) <= 2_000
    assert result.full_output is not None
    assert blobs.contents[result.full_output.sha256].endswith(b"y" * 50_000)


async def test_an_unknown_or_absurd_charset_is_utf_8(context: ToolContext) -> None:
    for charset in ("nonsense", "zlib_codec", "\xff", "unicode_escape", "utf-7"):
        async with serving(
            lambda _, charset=charset: answer(b"ok", f"Content-Type: text/plain; charset={charset}")
        ) as server:
            assert (await ask(server.tool(), context, f"http://a.test:{server.port}/")).text.endswith("\n\nok")


@given(st.sampled_from(sorted({*ALIASES, *ALIASES.values()})), st.binary(max_size=300))
def test_no_charset_makes_anything_but_characters(charset: str, body: bytes) -> None:
    """For every encoding that Python has and every body: what is shown can be written as UTF-8."""
    fields = {"content-type": f"text/plain; charset={charset}"}
    reply = Reply(status=200, reason="OK", url="http://a.test/", headers=fields, body=body, cut=False)
    shown(reply, InMemoryBlobs()).text.encode()


def test_the_end_of_an_endless_content_type_is_not_read() -> None:
    """Python parses one in time that grows with the square of its length."""
    fields = {"content-type": f"text/plain;{';' * 90_000}charset=latin-1"}
    reply = Reply(status=200, reason="OK", url="http://a.test/", headers=fields, body="é".encode(), cut=False)
    assert shown(reply, InMemoryBlobs()).text.endswith("\n\né")


def test_a_long_body_is_decoded_in_pieces_like_a_whole() -> None:
    for charset, text in (("utf-8", "é€" * 20_000), ("gb18030", "汉字" * 20_000), ("utf-16", "汉 " * 20_000)):
        fields = {"content-type": f"text/plain; charset={charset}"}
        body = b"x" * 3 + text.encode(charset) if charset != "utf-16" else text.encode(charset)
        reply = Reply(status=200, reason="OK", url="http://a.test/", headers=fields, body=body, cut=False)
        assert shown(reply, InMemoryBlobs()).text.endswith(f"\n{body.decode(charset)}")


def test_no_charset_takes_long() -> None:
    """A mebibyte in Python's slowest decoder, which is quadratic, would hold up every episode for minutes."""
    body = b"a" * (1 << 19) + b"-" + b"b" * (1 << 19)
    fields = {"content-type": "text/plain; charset=punycode"}
    reply = Reply(status=200, reason="OK", url="http://a.test/", headers=fields, body=body, cut=False)
    assert shown(reply, InMemoryBlobs()).text.endswith(body.decode())


async def test_a_server_that_takes_its_time_is_a_timeout(context: ToolContext) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as listener:
        server = Server(listener.sockets[0].getsockname()[1])
        result = await ask(server.tool(timeout_s=0.2), context, f"http://a.test:{server.port}/")
    assert result.status is CallStatus.TIMEOUT
    assert "0.2 s" in result.text


async def test_servers_that_fail_are_told_as_an_error_of_the_call(context: ToolContext) -> None:
    async with serving(lambda _: answer(b"")) as server:
        port = server.port
    tool = http_tool(f"a.test:{port}", may_connect=anywhere, resolve=to_loopback)
    result = await ask(tool, context, f"http://a.test:{port}/")
    assert (result.status, "cannot be reached" in result.text) == (CallStatus.ERROR, True)
    for broken in (b"nonsense\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"):
        async with serving(lambda _, broken=broken: broken) as server:
            result = await ask(server.tool(), context, f"http://a.test:{server.port}/")
        assert result.status is CallStatus.ERROR
        assert f"a.test:{server.port}" in result.text

    async def nowhere(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    result = await ask(http_tool("example.org", resolve=nowhere), context, "http://example.org/")
    assert result.text == "Error: example.org cannot be looked up: Name or service not known."


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"url": "ftp://a.test/"}, "starts with http:// or https://"),
        ({"url": "a.test"}, "starts with http:// or https://"),
        ({"url": "http://"}, "starts with http:// or https://"),
        ({"url": "http://a.test/\n"}, "is no address"),
        ({"url": "http://me:pw@a.test/"}, "must not contain a user's name"),
        ({"url": "http://a.test/" + "x" * 9_000}, "at most 8,000"),
        ({"url": "http://a.test/\ud800"}, "no address"),
        ({"url": "http://a.test/", "headers": {"Host": "b.test"}}, "Host cannot be set"),
        ({"url": "http://a.test/", "headers": {"Transfer-Encoding": "chunked"}}, "cannot be set"),
        ({"url": "http://a.test/", "headers": {"a b": "c"}}, "no name of a header field"),
        ({"url": "http://a.test/", "headers": {"a": "b\r\nX: y"}}, "printable ASCII on one line"),
        ({"url": "http://a.test/", "headers": {f"a{n}": "" for n in range(60)}}, "at most 50"),
        ({"url": "http://a.test/", "method": "BREW"}, "must be one of GET, HEAD"),
        ({"url": "http://a.test/", "method": "POST", "body": "\ud800"}, "lone surrogate"),
        ({}, "missing"),
    ],
)
async def test_what_is_no_request_is_told_and_not_sent(arguments: dict[str, Any], says: str) -> None:
    tool = http_tool("a.test", may_connect=anywhere, resolve=to_loopback)
    context = make_context()
    async with context.resources:
        result = await call_one(tool, context, **arguments)
    assert result.status is CallStatus.INVALID_ARGUMENTS
    assert says in result.text


async def test_tls_asks_for_the_name_and_does_not_take_a_certificate_nobody_signed(context: ToolContext) -> None:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(CERTIFICATE)
    names: list[str | None] = []
    made.sni_callback = lambda _socket, name, _context: names.append(name)
    async with serving(lambda _: answer(b"secret"), made) as server:
        result = await ask(server.tool(), context, f"https://a.test:{server.port}/")
    assert names == ["a.test"]
    assert result.status is CallStatus.ERROR
    assert "certificate" in result.text.lower()


async def test_requests_that_change_nothing_run_at_once_and_keep_their_order(context: ToolContext) -> None:
    """Neither is answered before both have come."""
    both = asyncio.Event()
    waiting: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
        waiting.append(path)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        writer.write(answer(path))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        server = Server(listener.sockets[0].getsockname()[1])
        tool = server.tool(methods=SAFE_METHODS)
        calls = calls_of(*(("http", {"url": f"http://a.test:{server.port}/{name}"}) for name in "ab"))
        results = await Toolbox([tool]).run(calls, context=context, deadline=NO_DEADLINE, refuse_after=None)
    assert [result.text[-2:] for result in results] == ["/a", "/b"]
    assert not server.tool().parallel


def test_what_a_tool_was_made_with_is_in_its_description_and_hash() -> None:
    made = [
        http,
        http_tool("example.org"),
        http_tool("example.com"),
        http_tool("example.org", methods=SAFE_METHODS),
        http_tool("example.org", max_bytes=5),
        http_tool("example.org", timeout_s=5),
    ]
    assert len({tool.sha256 for tool in made}) == len(made)
    assert "example.org:80|443" in made[1].spec.description


@pytest.mark.parametrize(
    ("hosts", "options", "says"),
    [
        (["http://example.org"], {}, "no host of an allow-list"),
        (["example.org"], {"methods": ()}, "at least one"),
        (["example.org"], {"methods": ("BREW",)}, "methods out of"),
        (["example.org"], {"max_bytes": 0}, "1 byte or more"),
    ],
)
def test_settings_that_cannot_work_are_refused(hosts: list[str], options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        http_tool(*hosts, **options)
