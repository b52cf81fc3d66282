"""What a connection out of a sandbox may carry, and that it ends: one request, whatever the host does; no leftovers."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import threading
from functools import partial
from pathlib import Path

import pytest
from agentenv.core import hosts
from agentenv.core.hosts import HostNotFound, addresses_for, look_up, parse_rules
from agentenv.sandboxes import egress, egress_carrying
from agentenv.sandboxes.egress import EgressProxy

PATIENCE_S = 60.0


class Client:
    """A connection of a process in a sandbox."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.send(*pieces)
        self.received = b""
        self.got = asyncio.Event()
        self.ended = False

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._pieces.put_nowait(piece)

    async def read(self) -> bytes:
        return await self._pieces.get()

    async def write(self, data: bytes) -> None:
        self.received += data
        self.got.set()

    async def write_end(self) -> None:
        self.ended = True

    async def until(self, word: bytes) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while word not in self.received:
                self.got.clear()
                await self.got.wait()


class Lasting:
    """A host that keeps every connection open for as long as it can, and answers whatever is asked for there."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        """All that came, up to the next empty line each."""
        self.port = 0
        self.left = asyncio.Event()
        """Set when a connection was closed by the other side."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswer")
        except asyncio.IncompleteReadError as ended:
            self.heads.append(ended.partial)
        except ConnectionError:
            pass  # closed with something unread
        self.left.set()
        await asyncio.Event().wait()  # it does not close, either


@pytest.fixture
async def host():
    host = Lasting()
    tasks: list[asyncio.Task[None]] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.ensure_future(host.serve(reader, writer)))
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host.port = server.sockets[0].getsockname()[1]
    yield host
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for writer in writers:
        writer.transport.abort()
    server.close()
    await server.wait_closed()


async def here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture
def proxy(host, monkeypatch):
    """It may reach ``allowed.test``, at the host's port. Its connections are noted in ``opened``."""
    opened: list[asyncio.StreamWriter] = []
    connect = asyncio.open_connection

    async def noting(address: str, port: int):
        reader, writer = await connect(address, port)
        opened.append(writer)
        return reader, writer

    monkeypatch.setattr(egress.asyncio, "open_connection", noting)
    proxy = EgressProxy(
        parse_rules((f"allowed.test:{host.port}",)), may_connect=lambda address: address.is_loopback, resolve=here
    )
    proxy.opened = opened
    return proxy


async def all_closed(proxy) -> None:
    """Wait until the kernel has every connection to the host back."""
    assert proxy.opened
    async with asyncio.timeout(PATIENCE_S):
        while any(writer.get_extra_info("socket").fileno() >= 0 for writer in proxy.opened):
            await asyncio.sleep(0)


def request(host, fields: bytes = b"", body: bytes = b"") -> bytes:
    return b"POST http://allowed.test:%d/ HTTP/1.1\r\n%b\r\n%b" % (host.port, fields, body)


SMUGGLED = b"GET /secret HTTP/1.1\r\nHost: other.test\r\n\r\n"


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (b"", b""),
        (b"Content-Length: 4\r\n", b"body"),
        (b"Transfer-Encoding: chunked\r\n", b"4\r\nbody\r\n0\r\n\r\n"),
        (b"Connection: keep-alive\r\nKeep-Alive: 10\r\nUpgrade: x\r\n", b""),
    ],
)
@pytest.mark.parametrize("when", ["at once", "next", "after the answer"])
async def test_second_request_on_a_connection_never_reaches_the_host(proxy, host, fields, body, when):
    """Neither one that names another host nor any other, though the host would answer it; the connection ends."""
    first = request(host, fields, body)
    client = Client(first + SMUGGLED if when == "at once" else first)
    serving = asyncio.ensure_future(proxy.serve(client))
    if when == "after the answer":
        await client.until(b"answer")
    if when != "at once":
        client.send(SMUGGLED)
    async with asyncio.timeout(PATIENCE_S):
        await serving
    await all_closed(proxy)
    await host.left.wait()
    received = b"".join(host.heads)
    assert received.count(b"HTTP/1.1") <= 1
    assert b"secret" not in received
    assert b"keep" not in received
    assert received == b"" or b"\r\nHost: allowed.test:%d\r\nConnection: close\r\n" % host.port in received


@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 4\r\nContent-Length: 44\r\n",
        b"Transfer-Encoding: gzip\r\n",
    ],
)
async def test_request_without_one_end_is_refused(proxy, host, fields):
    client = Client(request(host, fields, SMUGGLED))
    await proxy.serve(client)
    assert client.received.startswith(b"HTTP/1.1 400")
    assert (host.heads, proxy.opened) == ([], [])


async def test_client_that_has_gone_frees_its_connection(proxy, host, monkeypatch):
    """Though the host does not end it."""
    monkeypatch.setattr(egress_carrying, "_HALF_S", 0.01)
    client = Client(request(host), b"")
    async with asyncio.timeout(PATIENCE_S):
        await proxy.serve(client)
    await all_closed(proxy)
    await host.left.wait()


async def test_client_that_has_ended_its_own_direction_gets_the_whole_answer(monkeypatch):
    """However long it is, as long as something comes."""
    monkeypatch.setattr(egress_carrying, "_HALF_S", 5.0)
    whole = bytes(range(256)) * 40_000

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b"question"
        writer.write(whole)
        writer.close()

    async with await asyncio.start_server(late, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        proxy = EgressProxy(parse_rules((f"allowed.test:{port}",)), may_connect=lambda _: True, resolve=here)
        client = Client(b"CONNECT allowed.test:%d HTTP/1.1\r\n\r\n" % port, b"question", b"")
        await proxy.serve(client)
    assert client.received == b"HTTP/1.1 200 Connection established\r\n\r\n" + whole
    assert client.ended


@pytest.mark.parametrize("moment", ["before the answer", "while the host takes nothing"])
async def test_cancelled_connection_is_closed_at_once(moment):
    """Also where bytes wait for a host that does not read: closing would wait for it."""
    accepted = asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.transport.pause_reading()
        accepted.set()

    async with await asyncio.start_server(deaf, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        proxy = EgressProxy(parse_rules((f"allowed.test:{port}",)), may_connect=lambda _: True, resolve=here)
        pieces = [b"\0" * (1 << 20)] * (64 if moment != "before the answer" else 1)
        client = Client(b"CONNECT allowed.test:%d HTTP/1.1\r\n\r\n" % port, *pieces)
        serving = asyncio.ensure_future(proxy.serve(client))
        await accepted.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        peer = writers[0].get_extra_info("peername")
        async with asyncio.timeout(PATIENCE_S):
            while peer[1] in local_ports():
                await asyncio.sleep(0)
        writers[0].transport.abort()


def local_ports() -> set[int]:
    """Ports of the sockets that this process has open."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            about = path.stat()
        except OSError:
            continue
        if stat.S_ISSOCK(about.st_mode):
            with socket.socket(fileno=os.dup(int(path.name))) as one:
                try:
                    name = one.getsockname()
                except OSError:
                    continue
                if isinstance(name, tuple):
                    found.add(name[1])
    return found


# Names.


async def test_slow_name_servers_hold_up_names_only(monkeypatch):
    """However many names are asked for: a few at a time, in threads of their own; those that wait longest are told."""
    go, asked = threading.Event(), []

    def slow(host, port, **_):
        asked.append(threading.current_thread().name)
        go.wait(PATIENCE_S)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    looking = [asyncio.ensure_future(look_up("slow.test", 80)) for _ in range(100)]
    await asyncio.sleep(0)
    others = await asyncio.gather(*(asyncio.to_thread(partial(int, "7")) for _ in range(40)))
    assert others == [7] * 40
    assert len(asked) <= 16
    go.set()
    assert await asyncio.gather(*looking) == [["192.0.2.1"]] * 100
    assert all("names" in name for name in asked)


async def test_name_that_is_not_answered_is_given_up(monkeypatch):
    monkeypatch.setattr(hosts, "_LOOK_UP_S", 0.01)

    async def never(host: str, port: int) -> list[str]:
        return await asyncio.Event().wait() or []

    with pytest.raises(HostNotFound, match="no name server answered"):
        await addresses_for("allowed.test", 80, parse_rules(("allowed.test",)), resolve=never)


async def test_one_sandbox_looks_few_names_up_at_once():
    """So that the names of others have their turn."""
    now, most = 0, 0

    async def counted(host: str, port: int) -> list[str]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(10):
            await asyncio.sleep(0)
        now -= 1
        return ["127.0.0.1"]

    proxy = EgressProxy(parse_rules(("*.open.test",)), resolve=counted)
    clients = [Client(b"CONNECT n%d.open.test:443 HTTP/1.1\r\n\r\n" % number) for number in range(40)]
    await asyncio.gather(*map(proxy.serve, clients))
    assert most == 4
    assert all(b"no public address" in client.received for client in clients)
