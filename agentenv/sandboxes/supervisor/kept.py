"""A kept process: asked in lines, answers in lines, until it is killed."""

from __future__ import annotations

from agentenv.sandboxes.supervisor.jobs import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentenv.sandboxes.supervisor.loop import Loop
    from agentenv.sandboxes.supervisor.spawning import Child

LINE_LIMIT = 8 << 20
"""Bytes of one answer; a process that writes a longer line is killed."""
_STDERR_KEPT = 4096


class Kept(Job):
    """One question is open at a time. Lines that nobody asked for are dropped, so that none of them can answer."""

    def __init__(self, loop: Loop, id: int, child: Child, mark: bytes) -> None:
        super().__init__(loop, id, child, mark)
        self._asked = 0
        """Id of the open question; 0 if there is none."""
        self._line = bytearray()
        self._stderr = b""
        # A piece of the answer that ends when the process does.
        loop.outbox.put({"id": id, "kind": b"data"})

    def ask(self, id: int, line: bytes) -> None:
        """Put a question; the next line is its answer."""
        self._drain()  # what was written before the question is no answer to it
        if not self.counts:
            self._report(id)
            return
        if self._asked:
            self.loop.outbox.put({"id": id, "kind": b"error", "errno": 0, "text": b"a question is open already"})
            return
        self._line.clear()
        self._asked = id
        self.feed(line + b"\n", last=False)

    def received(self, stream: str, chunk: bytes) -> None:
        """Look for the answer's end."""
        if stream == "err":
            self._stderr = (self._stderr + chunk)[-_STDERR_KEPT:]
            return
        if not self._asked:
            return
        self._line += chunk
        end = self._line.find(b"\n", max(0, len(self._line) - len(chunk)))
        if end >= 0:
            self.loop.outbox.put({"id": self._asked, "kind": b"end"}, bytes(self._line[:end]))
            self._asked = 0
            self._line.clear()
        elif len(self._line) > LINE_LIMIT:
            self._line.clear()
            self.loop.soon(self._give_up)

    def _give_up(self) -> None:
        self.end_for(b"its answer is longer than %d bytes" % LINE_LIMIT)

    def cancel(self) -> None:
        """Kill it."""
        self.die()

    def ended(self) -> None:
        """Answer the open question, and say that the process is gone."""
        if self._asked:
            self._report(self._asked)
        self._report(self.id)

    def _report(self, id: int) -> None:
        fields = {"id": id, "kind": b"died", "code": self.exit_code, "why": self.why}
        self.loop.outbox.put(fields, self._stderr)
