"""A background process: its output is handed out when asked for, and until then stays in its pipes."""

from __future__ import annotations

import errno
import os
import select

from agentenv.sandboxes.supervisor.jobs import Job
from agentenv.sandboxes.supervisor.lean import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentenv.sandboxes.supervisor.loop import Loop
    from agentenv.sandboxes.supervisor.spawning import Child

_HELD = 2 << 20
"""Bytes that are kept of what is in the pipes when the process ends; they hold less, unless they were widened."""


class Background(Job):
    """Outlives its process until the harness lets go of it, for what is still to be read."""

    def __init__(self, loop: Loop, id: int, child: Child, mark: bytes) -> None:
        super().__init__(loop, id, child, mark)
        self._reader = 0
        """Id of the request that waits for output; 0 if there is none."""
        self._writers: list[int] = []
        """Ids of the requests whose bytes are not all taken yet."""
        self._held: deque[tuple[str, bytes]] = deque()
        self._held_bytes = 0
        self._ignore()
        # A piece of the answer that ends when the process does.
        loop.outbox.put({"id": id, "kind": b"data"})

    # Its output.

    def pull(self, id: int) -> None:
        """Answer with the next piece of output, now or when there is one."""
        self._reader = id
        if self._held:
            self._answer(*self._held.popleft())
            return
        for fd in list(self._streams):
            if self._reader:
                self._on_stream(fd, select.EPOLLIN)
        if self._reader and self._streams:
            for fd in self._streams:
                self.loop.watch(fd, select.EPOLLIN, self._on_stream)
        elif self._reader:
            self._answer("", b"")

    def received(self, stream: str, chunk: bytes) -> None:
        """Hand it to whoever waits; else it was taken at the end, and is kept."""
        if self._reader:
            self._ignore()
            self._answer(stream, chunk)
        elif self._held_bytes < _HELD:
            self._held_bytes += len(chunk)
            self._held.append((stream, chunk))

    def stream_ended(self) -> None:
        """Tell whoever waits that there is nothing more."""
        if self._reader and not self._streams:
            self._answer("", b"")

    def _answer(self, stream: str, chunk: bytes) -> None:
        self.loop.outbox.put({"id": self._reader, "kind": b"end", "part": stream.encode()}, chunk)
        self._reader = 0

    def _ignore(self) -> None:
        # Not watched at all: a pipe whose writer is gone is reported whatever is asked for.
        for fd in self._streams:
            self.loop.unwatch(fd)

    # Its input.

    def take(self, id: int, data: bytes, *, last: bool) -> None:
        """Queue bytes for stdin, and answer when they are taken, or cannot be."""
        self._writers.append(id)
        self.feed(data, last=last)
        if self._stdin < 0:
            self.stdin_closed(left=bool(data))

    def stdin_taken(self) -> None:
        """Answer all that waited."""
        for writer in self._writers:
            self.loop.outbox.put({"id": writer, "kind": b"end"})
        self._writers.clear()

    def stdin_closed(self, *, left: bool) -> None:
        """Answer all that waited: with an error where something was left."""
        why = os.strerror(errno.EPIPE).encode()
        for writer in self._writers:
            answer = {"kind": b"error", "errno": errno.EPIPE, "text": why} if left else {"kind": b"end"}
            self.loop.outbox.put({"id": writer, **answer})
        self._writers.clear()

    # Its end.

    def cancel(self) -> None:
        """Kill it, and drop what was not read."""
        self._held.clear()
        self._held_bytes = _HELD
        if self._reader:
            self._answer("", b"")
        self.die()

    def ended(self) -> None:
        """Report the end; what was in the pipes can still be read."""
        if self.why:
            self._held.append(("err", b"killed: %b\n" % self.why))
        self.loop.outbox.put({"id": self.id, "kind": b"died", "code": self.exit_code, "why": b""})
