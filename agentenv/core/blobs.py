"""Content-addressed bytes: output too long for a message, and snapshots of workspaces."""

from __future__ import annotations

from typing import Protocol

from agentenv.records.messages import Spill


class BlobWriter(Protocol):
    """Takes a text in pieces, so that it is never in memory whole."""

    def write(self, chunk: bytes) -> None:
        """Append."""
        ...

    def commit(self) -> Spill:
        """Make the blob durable under its hash and say which; the writer is spent."""
        ...

    def discard(self) -> None:
        """Throw away what was written. May be called after `commit`, and twice."""
        ...


class BlobSink(Protocol):
    """Where blobs go."""

    def open(self) -> BlobWriter:
        """Begin a blob of unknown length."""
        ...

    def put(self, content: bytes) -> Spill:
        """Store one at once."""
        ...


class BlobSource(Protocol):
    """Where blobs come from."""

    def get(self, sha256: str) -> bytes:
        """Read one.

        Raises:
            DamagedJournal: It is missing, or its content has another hash.
        """
        ...
