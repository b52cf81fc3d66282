"""The stream of a container, over connections that a test plays the engine on; no engine is needed."""

from __future__ import annotations

import asyncio
import itertools
import struct

import pytest
from agentenv.errors import SandboxFault
from agentenv.sandboxes.docker_stream import Address, Attached, attach
from hypothesis import given
from hypothesis import strategies as st

UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


def frame(stream: int, content: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(content)) + content


@given(
    frames=st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=20),
    cuts=st.lists(st.integers(0, 1000), max_size=20),
)
def test_bytes_do_not_depend_on_how_they_arrive(frames, cuts):
    """Whatever pieces the answer and its frames come in, stdout is that of the frames in order, and so is stderr."""

    async def scenario():
        whole = UPGRADED + b"".join(frame(*each) for each in frames)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        attached = Attached(reader, loop)
        places = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
        for start, end in itertools.pairwise(places):
            attached.data_received(whole[start:end])
        assert attached.upgraded.done()
        reader.feed_eof()
        assert await reader.read() == b"".join(content for stream, content in frames if stream == 1)
        assert attached.words == b"".join(content for stream, content in frames if stream == 2)

    asyncio.run(scenario())


class Played:
    """An engine of one answer; it notes what it was sent."""

    def __init__(self, answer: bytes, *, then_wait: bool = False) -> None:
        self.answer = answer
        self.then_wait = then_wait
        self.heard = b""
        self.over = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard = await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answer)
        if self.then_wait:
            self.heard += await reader.read()
        writer.close()
        await writer.wait_closed()
        self.over.set()


async def test_streams_are_told_apart_and_stdin_is_raw(tmp_path):
    """What is written goes as it is; the end of it reaches the other side."""
    played = Played(UPGRADED + frame(2, b"words") + frame(1, b"answer"), then_wait=True)
    path = str(tmp_path / "s")
    async with await asyncio.start_unix_server(played, path):
        stream = await attach(Address(path=path), "1.41", "some-name")
        assert await stream.reader.readexactly(6) == b"answer"
        assert bytes(stream.attached.words) == b"words"
        stream.writer.write(b"\x00\x01raw")
        stream.writer.close()
        await stream.writer.wait_closed()
        await played.over.wait()
    assert played.heard.startswith(b"POST /v1.41/containers/some-name/attach?")
    assert played.heard.endswith(b"\r\n\r\n\x00\x01raw")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b'HTTP/1.1 404 Not Found\r\n\r\n{"message":"No such container: x"}', "No such container: x"),
        (b"HTTP/1.1 409 Conflict\r\n\r\nno JSON", "no JSON"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "does not attach"),
        (b"x" * 70000, "does not attach"),
        (b"", "ended the connection"),
        (b"HTTP/1.1 101", "ended the connection"),
    ],
)
async def test_refusal_is_a_fault_with_the_engines_words(tmp_path, answer, said):
    path = str(tmp_path / "s")
    async with await asyncio.start_unix_server(Played(answer), path):
        with pytest.raises(SandboxFault, match=said):
            await attach(Address(path=path), "1.41", "x")


async def test_frame_of_an_unknown_stream_ends_the_connection(tmp_path):
    path = str(tmp_path / "s")
    async with await asyncio.start_unix_server(Played(UPGRADED + frame(7, b"?"), then_wait=True), path):
        stream = await attach(Address(path=path), "1.41", "x")
        assert await stream.reader.read() == b""
        assert b"unknown stream 7" in stream.attached.words
        stream.writer.close()


async def test_slow_reader_holds_the_engine_back(tmp_path):
    """Of 64 MiB only what fits the reader's buffer and the sockets' is taken before anybody reads."""
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(UPGRADED)
        for _ in range(1024):
            writer.write(frame(1, bytes(1 << 16)))
            sent += 1 << 16
            await writer.drain()
        writer.close()

    path = str(tmp_path / "s")
    async with await asyncio.start_unix_server(flood, path):
        stream = await attach(Address(path=path), "1.41", "x")
        transport = stream.writer.transport
        while transport.is_reading():
            await asyncio.sleep(0)
        assert sent < 16 << 20
        assert sum([len(await stream.reader.read(1 << 20)) for _ in range(4)]) > 0
        while await stream.reader.read(1 << 20):
            pass
        assert sent == 64 << 20
        stream.writer.close()


def test_addresses():
    assert Address.of("unix:///run/docker.sock") == Address(path="/run/docker.sock")
    assert Address.of("tcp://127.0.0.1:2375") == Address(host="127.0.0.1", port=2375)
    assert Address.of("tcp://[::1]:2375/") == Address(host="::1", port=2375)


@pytest.mark.parametrize(
    "url", ["ssh://host", "https://host:2376", "npipe:////./pipe/docker", "unix://", "tcp://host", ""]
)
def test_addresses_that_cannot_be_used_say_what_to_do(url):
    with pytest.raises(SandboxFault, match=r"unix:///PATH.*ssh -nNT") as refused:
        Address.of(url)
    assert not refused.value.retryable
