"""Bounded memory of an unbounded stream: its first bytes, its last bytes, and how many there were."""

from __future__ import annotations


class HeadTail:
    """Keeps everything up to ``limit`` bytes; beyond that, half of the limit from each end."""

    __slots__ = ("_buffer", "_head", "limit", "total")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        """Bytes seen."""
        self._head = b""
        """Set when the stream outgrows the limit; until then the buffer holds all of it."""
        self._buffer = bytearray()

    @property
    def overflowed(self) -> bool:
        """Whether the middle was dropped."""
        return self.total > self.limit

    def add(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        before = self.overflowed
        self.total += len(chunk)
        self._buffer += chunk
        if not self.overflowed:
            return
        if not before:
            self._head = bytes(self._buffer[: (self.limit + 1) // 2])
        # Trimmed at twice the size, so that a stream of small pieces does not move the tail for each of them.
        if len(self._buffer) > max(self.limit, 1 << 16):
            self._trim()

    def _trim(self) -> None:
        del self._buffer[: max(0, len(self._buffer) - self.limit // 2)]

    def parts(self) -> tuple[bytes, bytes]:
        """Give head and tail; the tail is empty if the head is all there was."""
        if not self.overflowed:
            return bytes(self._buffer), b""
        self._trim()
        return self._head, bytes(self._buffer)
