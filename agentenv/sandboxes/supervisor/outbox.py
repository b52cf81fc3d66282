"""Frames on their way to the harness. Writing never blocks: a slow reader must not stop a timeout."""

from __future__ import annotations

import os

from agentenv.sandboxes.supervisor.frames import encode
from agentenv.sandboxes.supervisor.lean import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentenv.sandboxes.supervisor.frames import Fields

_FULL = 1 << 20


class HarnessGone(Exception):
    """The other end of the stream is closed."""


class Outbox:
    """A queue of bytes before a non-blocking descriptor."""

    __slots__ = ("_fd", "_parts", "size")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._parts: deque[memoryview] = deque()
        self.size = 0
        """Bytes waiting."""

    @property
    def full(self) -> bool:
        """Whether whoever can wait should stop producing."""
        return self.size >= _FULL

    def put(self, fields: Fields, payload: bytes | memoryview = b"") -> None:
        """Queue one frame."""
        frame = encode(fields, payload)
        self._parts.append(memoryview(frame))
        self.size += len(frame)

    def flush(self) -> None:
        """Write what the descriptor takes.

        Raises:
            HarnessGone: Nobody will read it.
        """
        while self._parts:
            part = self._parts[0]
            try:
                written = os.write(self._fd, part)
            except BlockingIOError:
                return
            except OSError as error:
                raise HarnessGone from error
            self.size -= written
            if written == len(part):
                self._parts.popleft()
            else:
                self._parts[0] = part[written:]
