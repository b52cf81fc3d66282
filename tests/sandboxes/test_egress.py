"""The way out of a sandbox: the hosts of its list, by public addresses, and nothing else.

Servers on this machine's loopback stand for hosts; that their addresses may be connected to is an override of these
tests alone.
"""

from __future__ import annotations

import asyncio
import ipaddress
from functools import partial

import pytest
from agentenv.core.hosts import HostRule, is_public, parse_rules
from agentenv.core.sandbox import NetworkAccess, SandboxSpec
from agentenv.errors import ConfigError
from agentenv.sandboxes.bwrap import BwrapLauncher
from agentenv.sandboxes.egress import EgressProxy
from agentenv.sandboxes.supervised_provider import SupervisedProvider
from agentenv.testing.contracts.sandbox_calls import alive, patience, python, said, shell
from hypothesis import given
from hypothesis import strategies as st

LARGE = bytes(range(256)) * 20_000


class Host:
    """A server that stands for a host; notes what it was asked, and answers with the request's head."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.port = 0
        self.looked_up: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        body = LARGE if b"/large" in head else b"hello"
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    async def resolve(self, host: str, port: int) -> list[str]:
        self.looked_up.append(f"{host}:{port}")
        return ["127.0.0.1"]


@pytest.fixture
async def host():
    host = Host()
    async with await asyncio.start_server(host.serve, "127.0.0.1", 0) as server:
        host.port = server.sockets[0].getsockname()[1]
        yield host


@pytest.fixture
async def sandbox(host):
    """One that may reach ``allowed.test`` and what is below ``open.test``, at the server's port."""
    proxy = partial(EgressProxy, may_connect=lambda address: address.is_loopback, resolve=host.resolve)
    spec = SandboxSpec(network=(f"allowed.test:{host.port}", f"*.open.test:{host.port}"))
    async with (
        SupervisedProvider(BwrapLauncher(), make_proxy=proxy) as provider,
        await provider.lease(spec, patience()) as sandbox,
    ):
        yield sandbox


FETCH = """
import sys, urllib.request, urllib.error
for url in sys.argv[1:]:
    try:
        print(len(urllib.request.urlopen(url, timeout=20).read()))
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode().strip())
    except OSError as error:
        print(error)
"""


async def fetch(sandbox, *urls: str) -> list[str]:
    await sandbox.write("fetch.py", FETCH.encode())
    done = await sandbox.run(["python3", "-I", "fetch.py", *urls], deadline=patience(), timeout_s=60)
    assert done.exit_code == 0, said(done)
    return said(done).splitlines()


async def test_allowed_hosts_are_reached_and_others_are_not(sandbox, host):
    """Through the variables that every client knows; the refusal says what the list is."""
    port = host.port
    answers = await fetch(
        sandbox,
        f"http://allowed.test:{port}/x?y=1",
        f"http://deep.below.open.test:{port}/",
        f"http://open.test:{port}/",
        f"http://other.test:{port}/",
        "http://allowed.test/",
        f"http://127.0.0.2:{port}/",
    )
    assert answers[:2] == ["5", "5"]
    assert [line.split()[0] for line in answers[2:5]] == ["403", "403", "403"]
    assert f"allowed.test:{port}" in answers[3]
    assert answers[5].startswith("403")
    assert [head.split(b"\r\n")[:2] for head in host.heads] == [
        [b"GET /x?y=1 HTTP/1.1", b"Host: allowed.test:%d" % port],
        [b"GET / HTTP/1.1", b"Host: deep.below.open.test:%d" % port],
    ]
    assert host.looked_up == [f"allowed.test:{port}", f"deep.below.open.test:{port}"]


async def test_state_is_measured(sandbox):
    """A way to the proxy, no interface, no route, no name server."""
    state = await sandbox.network_state()
    assert (state.access, state.interfaces) == (NetworkAccess.ALLOW_LIST, ())
    assert "the proxy of the allow-list: yes" in state.detail


async def test_tunnels_carry_much_both_ways(sandbox, host):
    """Twelve at once, each with megabytes; nothing is mixed up, and commands go on beside them."""
    source = f"""
import hashlib, os, socket, threading
proxy = os.environ["https_proxy"].rsplit(":", 1)[1]
def one():
    s = socket.create_connection(("127.0.0.1", int(proxy)))
    s.sendall(b"CONNECT allowed.test:{host.port} HTTP/1.1\\r\\n\\r\\n")
    reader = s.makefile("rb")
    assert reader.readline().startswith(b"HTTP/1.1 200"), "status"
    assert reader.readline() == b"\\r\\n"
    s.sendall(b"GET /large HTTP/1.1\\r\\n\\r\\n")
    while reader.readline() != b"\\r\\n": pass
    print(hashlib.sha256(reader.read()).hexdigest() == hashlib.sha256(bytes(range(256)) * 20_000).hexdigest())
threads = [threading.Thread(target=one) for _ in range(12)]
for t in threads: t.start()
for t in threads: t.join()
"""
    done, beside = await asyncio.gather(python(sandbox, source), shell(sandbox, "echo beside"))
    assert said(done).split() == ["True"] * 12, said(done)
    assert beside.stdout.head == b"beside\n"


async def test_connection_nobody_reads_holds_back_its_sender_only(sandbox, host):
    source = f"""
import os, socket, time
s = socket.create_connection(("127.0.0.1", int(os.environ["http_proxy"].rsplit(":", 1)[1])))
s.sendall(b"GET http://allowed.test:{host.port}/large HTTP/1.1\\r\\n\\r\\n")
print("sent", flush=True)
time.sleep(1000)
"""
    await sandbox.write("idle.py", source.encode())
    async with await sandbox.spawn(["python3", "-I", "-S", "idle.py"], deadline=patience()) as idle:
        assert await idle.read(patience()) == ("out", b"sent\n")
        assert await fetch(sandbox, f"http://allowed.test:{host.port}/large") == [str(len(LARGE))]
    assert await alive(sandbox) == []


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET / HTTP/1.1", b"400"),
        (b"GET https://allowed.test/ HTTP/1.1", b"400"),
        (b"CONNECT allowed.test HTTP/1.1", b"400"),
        (b"CONNECT allowed.test:99999 HTTP/1.1", b"400"),
        (b"\xff\xfe", b"400"),
        (b"CONNECT [::1]:80 HTTP/1.1", b"403"),
        (b"GET http://allowed.test@other.test/ HTTP/1.1", b"403"),
        (b"X" * 100_000, b"431"),
        (b"GET\nHost:other.test http://allowed.test/ HTTP/1.1", b"400"),
        (b"GET http://allowed.test/ HTTP/1.1 x HTTP/1.1", b"400"),
        (b"GET http://allowed.test/\x0bx HTTP/1.1", b"400"),
        (b" http://allowed.test/ HTTP/1.1", b"400"),
        *(
            (b"GET http://allowed.test/ HTTP/1.1\r\n" + fields, b"400")
            for fields in (
                b"X: a\nHost: other.test",
                b"X: a\rHost: other.test",
                b"X: a\r\n Host: other.test",
                b"Host : other.test",
                b"\x0bHost: other.test",
                b"X: a\0",
                b"X",
            )
        ),
    ],
)
async def test_nonsense_is_refused(sandbox, request_head, status):
    """With a status a client understands, and nothing is looked up."""
    await sandbox.write("head", request_head + b"\r\n\r\n")
    done = await python(
        sandbox,
        "import os, socket\n"
        's = socket.create_connection(("127.0.0.1", int(os.environ["http_proxy"].rsplit(":", 1)[1])))\n'
        's.sendall(open("head", "rb").read()); print(s.makefile("rb").readline().decode())',
    )
    assert said(done).split()[1].encode() == status, said(done)


class Loopback:
    """One connection to a proxy, in memory."""

    def __init__(self, sent: bytes) -> None:
        self._sent = [sent]
        self.received = b""

    async def read(self) -> bytes:
        return self._sent.pop(0) if self._sent else b""

    async def write(self, data: bytes) -> None:
        self.received += data

    async def write_end(self) -> None:
        """Nothing is sent after it."""


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "192.0.2.1", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "::ffff:127.0.0.1",
        "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1", "::", "::127.0.0.1",
        "::ffff:0:127.0.0.1", "fec0::1", "5f00::1", "3fff::1", "168.63.129.16",
    ],
)  # fmt: skip
async def test_names_that_lead_to_what_is_not_public_are_refused(address):
    """Whatever the name, by the address it has when it is connected to."""

    async def resolve(host: str, port: int) -> list[str]:
        return [address]

    assert not is_public(ipaddress.ip_address(address))
    stream = Loopback(b"CONNECT rebinding.test:443 HTTP/1.1\r\n\r\n")
    await EgressProxy(parse_rules(("rebinding.test",)), resolve=resolve).serve(stream)
    assert stream.received.startswith(b"HTTP/1.1 403")
    assert b"no public address" in stream.received


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700:4700::1111"])
def test_public_addresses(address):
    assert is_public(ipaddress.ip_address(address))


async def test_address_on_the_list_is_checked_too():
    stream = Loopback(b"CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n")
    await EgressProxy(parse_rules(("127.0.0.1",))).serve(stream)
    assert stream.received.startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    ("rule", "host", "port", "allowed"),
    [
        ("example.org", "example.org", 443, True),
        ("example.org", "example.org", 80, True),
        ("example.org", "example.org", 22, False),
        ("example.org", "www.example.org", 443, False),
        ("example.org", "badexample.org", 443, False),
        ("*.example.org", "a.b.example.org", 443, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "badexample.org", 443, False),
        ("Example.org:8080", "example.org", 8080, True),
        ("example.org:8080", "example.org", 443, False),
        ("[2606:4700::1]:8443", "2606:4700::1", 8443, True),
        ("192.0.2.1:8000", "192.0.2.1", 8000, True),
    ],
)
def test_rules(rule, host, port, allowed):
    assert HostRule.parse(rule).allows(host, port) == allowed


@pytest.mark.parametrize(
    "text", ["", "*", "a b", "http://x", "x/y", "x:", "x:0", "x:99999", "*.*.x", "a.*.b", "-x", "::1", "[x]", "[::1"]
)
def test_what_is_no_rule(text):
    """An address of version 6 has to be in brackets, or its end would be a port."""
    with pytest.raises(ConfigError, match="no host of an allow-list"):
        HostRule.parse(text)


@given(st.from_regex(r"[a-z]{1,9}(\.[a-z]{1,9}){0,3}", fullmatch=True), st.integers(1, 65535))
def test_rules_are_about_what_they_name(host, port):
    """parse(h:p).allows(h', p') == ((h', p') == (h, p))."""
    rule = HostRule.parse(f"{host}:{port}")
    assert rule.allows(host, port)
    assert not rule.allows(f"x{host}", port)
    assert not rule.allows(host, port % 65535 + 1)
