"""The stream of a container's stdin, stdout and stderr: attached over the engine's own connection, without a thread.

The engine sends stdout and stderr as frames on one connection. Here stdout becomes an ordinary stream reader, with its
back-pressure, and of stderr the end is kept: those are words for people.

Source: "Attach to a container", Docker Engine API 1.41, for the upgrade of the connection and the form of its frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from dataclasses import dataclass

from agentenv.errors import SandboxFault

_STDOUT, _STDERR = 1, 2
_PREFIX = struct.Struct(">BxxxI")
"""Which stream a frame belongs to, and the bytes that follow."""
_MOST_HEAD = 1 << 16
_STREAM_BYTES = 1 << 18
_LAST_WORDS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where an engine listens: a socket of this machine, or a host without TLS."""

    path: str | None = None
    host: str = ""
    port: int = 0

    @classmethod
    def of(cls, url: str) -> Address:
        """Read what ``DOCKER_HOST`` may be.

        Raises:
            SandboxFault: Another scheme; permanent, with the remedy.
        """
        scheme, _, rest = url.partition("://")
        if scheme == "unix" and rest:
            return cls(path=rest)
        host, _, port = rest.rstrip("/").rpartition(":")
        if scheme in {"tcp", "http"} and host and port.isdigit():
            return cls(host=host.strip("[]"), port=int(port))
        raise SandboxFault.permanent(
            f"DOCKER_HOST is {url!r}: expected unix:///PATH, or tcp://HOST:PORT without TLS. Remedy for another "
            "machine's engine: ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock HOST, and "
            "DOCKER_HOST=unix:///tmp/docker.sock"
        )


class Attached(asyncio.StreamReaderProtocol):
    """One attached connection: first the answer to the upgrade, then frames."""

    def __init__(self, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(reader, loop=loop)
        self.upgraded: asyncio.Future[None] = loop.create_future()
        """Done when frames may be exchanged; else says what the engine answered."""
        self.ended: asyncio.Future[None] = loop.create_future()
        """Done when nothing more will come."""
        self.words = bytearray()
        """The end of stderr."""
        self._connection: asyncio.BaseTransport | None = None
        self._head: bytearray | None = bytearray()
        """The answer to the upgrade as far as it has come; None when it is over."""
        self._prefix = bytearray()
        self._stream = 0
        self._left = 0
        """Bytes of the current frame still to come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection = transport
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        view = memoryview(data)
        if self._head is not None:
            view = self._take_head(self._head, data)
        while view:
            if self._left:
                piece, view = view[: self._left], view[self._left :]
                self._left -= len(piece)
                self._take(piece)
                continue
            need = _PREFIX.size - len(self._prefix)
            self._prefix += view[:need]
            view = view[need:]
            if len(self._prefix) == _PREFIX.size:
                self._stream, self._left = _PREFIX.unpack(self._prefix)
                self._prefix.clear()

    def _take_head(self, head: bytearray, data: bytes) -> memoryview:
        head += data
        end = head.find(b"\r\n\r\n")
        if end < 0 and len(head) < _MOST_HEAD:
            return memoryview(b"")
        status = bytes(head[:64]).split(b"\r\n")[0].split(b" ")
        if end < 0 or len(status) < 2 or status[1] not in {b"101", b"200"}:
            self._refuse(bytes(head[max(0, end) :]) or b"nothing that could be understood")
            return memoryview(b"")
        self._head = None
        if not self.upgraded.done():
            self.upgraded.set_result(None)
        return memoryview(bytes(head[end + 4 :]))

    def _refuse(self, body: bytes) -> None:
        said = body.strip().decode(errors="replace")[-500:]
        with contextlib.suppress(ValueError, KeyError, TypeError):  # else the text is what there is
            said = str(json.loads(said)["message"])
        if not self.upgraded.done():
            self.upgraded.set_exception(SandboxFault(f"the Docker Engine does not attach to a container: {said}"))
        self._end()

    def _take(self, piece: memoryview) -> None:
        if self._stream == _STDOUT:
            super().data_received(piece)  # pyright: ignore[reportArgumentType] - it is appended to a bytearray
        elif self._stream == _STDERR:
            self.words += piece
            del self.words[:-_LAST_WORDS]
        else:
            self.words += f"the Docker Engine sent a frame of the unknown stream {self._stream}".encode()
            self._end()

    def _end(self) -> None:
        if isinstance(self._connection, asyncio.WriteTransport):
            self._connection.abort()

    def eof_received(self) -> bool:
        self._ended()
        super().eof_received()
        return self._head is None  # an answer that is not whole will not be: that closes the connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()
        if not self.upgraded.done():
            self.upgraded.set_exception(SandboxFault("the Docker Engine ended the connection to a container"))
        super().connection_lost(exc)

    def _ended(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A container's streams."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    attached: Attached


async def attach(address: Address, version: str, container: str) -> Stream:
    """Attach to a container that was created, before it is started: nothing of its output is missed.

    Args:
        address: Of the engine.
        version: Of the API, as ``1.41``.
        container: Name or id.

    Raises:
        SandboxFault: The engine refuses, or ends the connection.
        OSError: It cannot be reached.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_STREAM_BYTES, loop=loop)

    def protocol() -> Attached:
        return Attached(reader, loop)

    if address.path is not None:
        transport, attached = await loop.create_unix_connection(protocol, address.path)
    else:
        transport, attached = await loop.create_connection(protocol, address.host, address.port)
    transport.write(
        f"POST /v{version}/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
        "Host: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode()
    )
    try:
        await attached.upgraded
    except BaseException:
        transport.abort()
        raise
    writer = asyncio.StreamWriter(transport, attached, reader, loop)
    return Stream(reader=reader, writer=writer, attached=attached)
