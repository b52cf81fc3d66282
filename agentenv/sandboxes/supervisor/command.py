"""A command: run to its end or its timeout, its output kept at both ends, and handed out whole where asked."""

from __future__ import annotations

from agentenv.sandboxes.supervisor.capture import HeadTail
from agentenv.sandboxes.supervisor.census import send
from agentenv.sandboxes.supervisor.frames import CHUNK
from agentenv.sandboxes.supervisor.jobs import FOREVER, Job
from agentenv.sandboxes.supervisor.lean import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentenv.sandboxes.supervisor.loop import Loop
    from agentenv.sandboxes.supervisor.spawning import Child

_TERM_GRACE_S = 0.25
"""Between SIGTERM to the leader's group and SIGKILL to everything."""


class Command(Job):
    """See the module."""

    def __init__(
        self, loop: Loop, id: int, child: Child, mark: bytes, *, timeout_s: float, keep: int, spill: bool
    ) -> None:
        super().__init__(loop, id, child, mark)
        self.timed_out = False
        self.wake_at = self.started_at + timeout_s
        self.spill = spill
        """Whether a stream that outgrows its place here is sent out whole."""
        self._outputs = {"out": HeadTail(keep), "err": HeadTail(keep)}

    def on_time(self) -> None:
        """Terminate, then kill."""
        if not self.counts:
            super().on_time()
        elif not self.timed_out:
            self.timed_out = True
            self.wake_at = self.loop.now() + _TERM_GRACE_S
            send({-self.leader}, signal.SIGTERM)
        else:
            self.die()

    def cancel(self) -> None:
        """Kill it without grace; nobody waits for its answer."""
        self.wake_at = FOREVER
        self.die()

    def received(self, stream: str, chunk: bytes) -> None:
        """Keep the ends; pass everything on once the stream is too long to be kept."""
        output = self._outputs[stream]
        if self.spill and output.total + len(chunk) > output.limit:
            if not output.overflowed:
                self._pass_on(stream, output.parts()[0])
            self._pass_on(stream, chunk)
        if not output.overflowed and output.total + len(chunk) > output.limit:
            self.widen(stream)
        output.add(chunk)
        if self.spill and self.loop.outbox.full:
            self.loop.hold(self)

    def _pass_on(self, stream: str, data: bytes) -> None:
        for at in range(0, len(data), CHUNK):
            self.loop.outbox.put({"id": self.id, "kind": b"data", "part": stream.encode()}, data[at : at + CHUNK])

    def ended(self) -> None:
        """Answer: what came of it, with what was kept of its output."""
        if self.why:
            self.received("err", b"killed: %b\n" % self.why)
        parts = [*self._outputs["out"].parts(), *self._outputs["err"].parts()]
        fields = {
            "id": self.id,
            "kind": b"end",
            "code": self.exit_code,
            "timed_out": int(self.timed_out),
            "killed": len(self.killed),
            "micros": int((self.loop.now() - self.started_at) * 1e6),
            "out": self._outputs["out"].total,
            "err": self._outputs["err"].total,
            "sizes": b",".join(b"%d" % len(part) for part in parts),
        }
        whole = b"".join(parts)
        last = max(0, len(whole) - 1) // CHUNK * CHUNK
        for at in range(0, last, CHUNK):
            self.loop.outbox.put({"id": self.id, "kind": b"data", "part": b"kept"}, whole[at : at + CHUNK])
        self.loop.outbox.put(fields, whole[last:])
