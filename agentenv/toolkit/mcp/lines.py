"""The bytes of a server's two streams, made messages: bounded, and with a note of what was none."""

from __future__ import annotations

from agentenv.toolkit.output import decode

MOST_MESSAGE_BYTES = 16 << 20
"""Longest message that is taken from a server."""
MOST_UNASKED = 2_000
"""Lines that a server may send without being asked anything in between."""
_TAIL_BYTES = 2_000
_EXCERPT_CHARS = 300


class Flood(Exception):
    """A server sends more than anybody would read; the text says what."""


class ServerOutput:
    """What a server wrote so far, and how it is told where it matters."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._errors = b""
        self._unasked = 0
        self._odd_lines = 0
        self._odd_line = b""

    def asked(self) -> None:
        """Take note that the server was sent a message: what comes now may be an answer."""
        self._unasked = 0

    def lines(self, data: bytes) -> list[bytes]:
        """Give the lines that are complete with this piece of stdout, empty ones left out.

        Raises:
            Flood: A line is too long, or there are too many.
        """
        complete: list[bytes] = []
        if (end := data.rfind(b"\n")) < 0:
            self._pending += data
        else:
            whole = bytes(self._pending) + data[:end]
            complete = [line for line in whole.split(b"\n") if line and not line.isspace()]
            self._pending = bytearray(data[end + 1 :])
        self._unasked += len(complete)
        if max((len(self._pending), *map(len, complete))) > MOST_MESSAGE_BYTES:
            raise Flood(f"it sent a message of more than {MOST_MESSAGE_BYTES:,} bytes")
        if self._unasked > MOST_UNASKED:
            raise Flood(f"it sent more than {MOST_UNASKED:,} messages that nobody asked for")
        return complete

    def odd(self, line: bytes) -> None:
        """Take note of a line that is no message."""
        self._odd_lines += 1
        self._odd_line = self._odd_line or line[:_EXCERPT_CHARS]

    def error(self, data: bytes) -> None:
        """Keep the end of its stderr."""
        self._errors = (self._errors + data)[-_TAIL_BYTES:]

    def told(self) -> str:
        """Say what helps to understand a server that failed: odd lines and stderr; empty if there was nothing."""
        said: list[str] = []
        if self._odd_lines:
            lines = "a line that is" if self._odd_lines == 1 else f"{self._odd_lines:,} lines that are"
            said.append(f"Its stdout had {lines} no message, such as: {decode(self._odd_line)}")
        if self._errors.strip():
            said.append(f"Its stderr ended with: {decode(self._errors.strip())}")
        return "\n".join(said)
