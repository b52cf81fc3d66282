"""A port on the sandbox's loopback whose connections are carried over the harness's stream: the way to its proxy.

Every connection has a number, and each direction a window: bytes that may be under way and not taken by the other end.
So one that is not read holds back its sender, and nothing else.
"""

from __future__ import annotations

import _socket  # the module around it costs milliseconds
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentenv.sandboxes.supervisor.loop import Loop

WINDOW = 1 << 17
"""Bytes, of each direction of each connection."""
_MOST = 64
"""Connections at once; a further one is closed."""
_READ = 1 << 16
_OFTEN = WINDOW // 4
"""Bytes taken before the sender is told: not for every piece."""


class Listener:
    """One per sandbox, for all its life."""

    def __init__(self, loop: Loop, id: int) -> None:
        self.loop = loop
        self._id = id
        self._connections: dict[int, _Connection] = {}
        self._last = 0
        self._socket = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(_MOST)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        loop.watch(self._socket.fileno(), select.EPOLLIN, self._on_connection)
        self.say(0, b"listening", number=self.port)

    def say(self, connection: int, what: bytes, payload: bytes = b"", *, number: int = 0) -> None:
        """Tell the harness about a connection."""
        fields = {"id": self._id, "kind": b"data", "connection": connection, "what": what, "n": number}
        self.loop.outbox.put(fields, payload)

    def told(self, connection: int, what: bytes, payload: bytes, *, number: int) -> None:
        """Do what the harness says about a connection; nothing if that has ended."""
        one = self._connections.get(connection)
        if one is None:
            return
        if what == b"data":
            one.send(payload)
        elif what == b"taken":
            one.allow(number)
        elif what == b"eof":
            one.send_end()
        else:
            one.close()

    def forget(self, connection: int) -> None:
        """Let go of one that is closed."""
        self._connections.pop(connection, None)

    def _on_connection(self, _fd: int, _events: int) -> None:
        try:
            fd, _ = self._socket._accept()  # pyright: ignore[reportAttributeAccessIssue]  what socket.accept calls
        except OSError:
            return  # it went away again
        if len(self._connections) >= _MOST:
            os.close(fd)
            return
        self._last += 1
        self.say(self._last, b"open")
        self._connections[self._last] = _Connection(self, self._last, fd)


class _Connection:
    """One of them."""

    def __init__(self, listener: Listener, number: int, fd: int) -> None:
        self._listener = listener
        self._number = number
        self._socket = _socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self._fd = fd
        self._window = WINDOW
        """Bytes that may still go to the harness."""
        self._reading = True
        """Whether its end has not been read."""
        self._waiting = bytearray()
        """Bytes from the harness, not yet written."""
        self._ending = False
        """Whether the harness has sent the end."""
        self._taken = 0
        """Bytes written that the harness has not been told of."""
        self._watch()

    def allow(self, taken: int) -> None:
        """Send more, since the harness has taken some."""
        self._window += taken
        self._watch()

    def send(self, data: bytes) -> None:
        """Write what came from the harness, which keeps to its window."""
        self._waiting += data
        self._write()

    def send_end(self) -> None:
        """Write the end after all that came before."""
        self._ending = True
        self._write()

    def close(self) -> None:
        """Close it at once."""
        if self._fd >= 0:
            self._listener.loop.unwatch(self._fd)
            self._listener.forget(self._number)
            self._socket.close()
            self._fd = -1

    def _watch(self) -> None:
        if self._fd < 0:
            return
        events = select.EPOLLIN if self._reading and self._window else 0
        events |= select.EPOLLOUT if self._waiting else 0
        if events:
            self._listener.loop.watch(self._fd, events, self._on_event)
        else:
            # Not watched at all: one that was hung up is reported whatever is asked for.
            self._listener.loop.unwatch(self._fd)

    def _on_event(self, _fd: int, events: int) -> None:
        if events & select.EPOLLOUT:
            self._write()
        if self._fd >= 0 and self._reading and self._window and events & ~select.EPOLLOUT:
            self._read()

    def _read(self) -> None:
        try:
            data = os.read(self._fd, min(_READ, self._window))
        except BlockingIOError:
            return
        except OSError:
            self._gone()
            return
        self._window -= len(data)
        self._reading = bool(data)
        self._listener.say(self._number, b"data" if data else b"eof", data)
        self._watch()

    def _write(self) -> None:
        while self._waiting and self._fd >= 0:
            try:
                written = os.write(self._fd, self._waiting)
            except BlockingIOError:
                break
            except OSError:
                self._gone()
                return
            del self._waiting[:written]
            self._taken += written
        if self._taken >= _OFTEN or (self._taken and not self._waiting):
            self._listener.say(self._number, b"taken", number=self._taken)
            self._taken = 0
        if self._ending and not self._waiting and self._fd >= 0:
            try:
                self._socket.shutdown(_socket.SHUT_WR)
            except OSError:
                self._gone()
                return
        self._watch()

    def _gone(self) -> None:
        self._listener.say(self._number, b"gone")
        self.close()
