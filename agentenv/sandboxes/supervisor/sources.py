"""Answers that take their time: a file, and what is done to or asked of the whole workspace."""

from __future__ import annotations

import errno
from itertools import islice

from agentenv.sandboxes.supervisor.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TypeVar

    from agentenv.sandboxes.supervisor.outbox import Outbox
    from agentenv.sandboxes.supervisor.workspace import Reading

    T = TypeVar("T")

_ENTRIES = 256
"""Of a tree, that are dealt with before the loop looks at other things."""


def refuse(outbox: Outbox, id: int, error: OSError) -> None:
    """Answer a request with the system's error."""
    why = (error.strerror or str(error)).encode("utf-8", "backslashreplace")
    outbox.put({"id": id, "kind": b"error", "errno": error.errno or errno.EIO, "text": why})


class Source:
    """Fills the outbox piece by piece, as it gets room."""

    def __init__(self, outbox: Outbox, id: int) -> None:
        self._outbox = outbox
        self._id = id

    def step(self) -> bool:
        """Put the next piece; say whether there is more."""
        try:
            more = self._next()
        except OSError as error:
            refuse(self._outbox, self._id, error)
            more = False
        if not more:
            self.cancel()
        return more

    def cancel(self) -> None:
        """Release what it holds; nobody waits for it."""
        raise NotImplementedError

    def _next(self) -> bool:
        raise NotImplementedError


class Sending(Source):
    """The content of one file."""

    def __init__(self, outbox: Outbox, id: int, reading: Reading) -> None:
        super().__init__(outbox, id)
        self._reading = reading

    def cancel(self) -> None:
        self._reading.close()

    def _next(self) -> bool:
        piece = self._reading.next()
        if piece:
            self._outbox.put({"id": self._id, "kind": b"data"}, piece)
        else:
            self._outbox.put({"id": self._id, "kind": b"end"})
        return bool(piece)


class Snapshot(Source):
    """Path and content of every regular file; each ends with an empty piece."""

    def __init__(self, outbox: Outbox, id: int, root: int) -> None:
        super().__init__(outbox, id)
        self._tree = Tree(root)
        self._files = self._tree.files()
        self._reading: Reading | None = None
        self._path = b""

    def cancel(self) -> None:
        self._files.close()
        self._tree.close()
        if self._reading is not None:
            self._reading.close()

    def _next(self) -> bool:
        if self._reading is None:
            found = next(self._files, None)
            if found is None:
                self._outbox.put({"id": self._id, "kind": b"end"})
                return False
            self._path, self._reading = found
        piece = self._reading.next()
        fields = {"id": self._id, "kind": b"data", "path": self._path, "last": int(not piece)}
        self._outbox.put(fields, piece)
        if not piece:
            self._reading.close()
            self._reading = None
        return True


class Clearing(Source):
    """The removal of everything in the workspace."""

    def __init__(self, outbox: Outbox, id: int, root: int) -> None:
        super().__init__(outbox, id)
        self._tree = Tree(root)
        self._removed = self._tree.remove()

    def cancel(self) -> None:
        self._removed.close()
        self._tree.close()

    def _next(self) -> bool:
        if sum(1 for _ in _some(self._removed)) == _ENTRIES:
            return True
        self._outbox.put({"id": self._id, "kind": b"end"})
        return False


class Measuring(Source):
    """The space that the files of a workspace take up, and their number."""

    def __init__(self, outbox: Outbox, id: int, root: int, fields: Mapping[str, int | bytes]) -> None:
        super().__init__(outbox, id)
        self._tree = Tree(root)
        self._sizes = self._tree.sizes()
        self._fields = fields
        """What else the answer says."""
        self._files = 0
        self._bytes = 0

    def cancel(self) -> None:
        self._sizes.close()
        self._tree.close()

    def _next(self) -> bool:
        sizes = list(_some(self._sizes))
        self._files += len(sizes)
        self._bytes += sum(sizes)
        if len(sizes) == _ENTRIES:
            return True
        self._outbox.put({"id": self._id, "kind": b"end", **self._fields, "bytes": self._bytes, "files": self._files})
        return False


def _some(entries: Iterator[T]) -> Iterator[T]:
    return islice(entries, _ENTRIES)
