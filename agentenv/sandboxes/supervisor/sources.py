"""Answers that are made while they are sent: a file, a snapshot of the workspace."""

from __future__ import annotations

import errno

from agentenv.sandboxes.supervisor.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentenv.sandboxes.supervisor.outbox import Outbox
    from agentenv.sandboxes.supervisor.workspace import Reading


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
