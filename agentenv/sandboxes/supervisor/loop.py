"""The event loop: descriptors, children, moments, and what waits for room in the outbox."""

from __future__ import annotations

import os
import select
import time

from agentenv.sandboxes.supervisor import census
from agentenv.sandboxes.supervisor.jobs import FOREVER
from agentenv.sandboxes.supervisor.lean import deque, signal
from agentenv.sandboxes.supervisor.outbox import Outbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentenv.sandboxes.supervisor.crowding import Crowding
    from agentenv.sandboxes.supervisor.jobs import Job
    from agentenv.sandboxes.supervisor.sources import Source

_STOP_S = 1.0
"""For the dead to leave; what has been sent SIGKILL runs no instruction of its own any more."""
_STOP_TICK_S = 0.002


class Stopping:
    """Waits until nothing of the policy is alive, then answers."""

    def __init__(self, loop: Loop, id: int) -> None:
        self._loop = loop
        self._id = id
        self._since = self.wake_at = loop.now()

    def on_time(self) -> None:
        """Kill again, or be done."""
        now = self._loop.now()
        if (self._loop.jobs or any(self._loop.sweep())) and now < self._since + _STOP_S:
            self.wake_at = now + _STOP_TICK_S
            return
        self._loop.stopping.discard(self)
        self._loop.outbox.put({"id": self._id, "kind": b"end"})


class Loop:
    """Runs until the harness is gone."""

    def __init__(self, *, source: int, sink: int) -> None:
        self.outbox = Outbox(sink)
        self.jobs: dict[int, Job] = {}
        self.sources: dict[int, Source] = {}
        self.stopping: set[Stopping] = set()
        self._sweeper = census.Sweeper()
        self.watches: list[Crowding] = []
        self._source = source
        self._sink = sink
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int, int], object]] = {}
        self._masks: dict[int, int] = {}
        self._held: set[Job] = set()
        self._soon: deque[Callable[[], object]] = deque()
        self._wake = _children_wake()
        self.watch(self._wake, select.EPOLLIN, self._on_children)

    now = staticmethod(time.monotonic)

    # Descriptors.

    def watch(self, fd: int, events: int, handler: Callable[[int, int], object]) -> None:
        """Call ``handler(fd, events)`` when it is ready; may be called again with other events."""
        self._handlers[fd] = handler
        self.change(fd, events)

    def change(self, fd: int, events: int) -> None:
        """Wait for other events."""
        known = self._masks.get(fd)
        if known is None:
            self._epoll.register(fd, events)
        elif known != events:
            self._epoll.modify(fd, events)
        self._masks[fd] = events

    def unwatch(self, fd: int) -> None:
        """Stop; may be called for one that is not watched."""
        if self._masks.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            del self._handlers[fd]

    # Jobs.

    def sweep(self, *, patient: bool = True) -> tuple[set[int], bool]:
        """Kill what belongs to no job that may live; give whom, and whether others are still to be judged."""
        leaders = {job.leader: job.mark for job in self.jobs.values() if job.counts}
        return self._sweeper.sweep(leaders, patient=patient), self._sweeper.undecided

    def kill_everyone(self) -> None:
        """Kill every process of the sandbox but this one."""
        census.kill_everyone()

    def stop(self, id: int) -> None:
        """Kill every process of the policy, and answer request ``id`` when it is so."""
        for job in list(self.jobs.values()):
            job.die()
        census.kill_everyone()
        self.stopping.add(Stopping(self, id))

    def job_ended(self, job: Job) -> None:
        """Forget it."""
        self._held.discard(job)
        self.jobs.pop(job.id, None)

    def hold(self, job: Job) -> None:
        """Let a job wait until the outbox has room."""
        if job not in self._held:
            self._held.add(job)
            job.pause()

    def soon(self, call: Callable[[], object]) -> None:
        """Call it after the events at hand."""
        self._soon.append(call)

    def _on_children(self, fd: int, _events: int) -> None:
        os.read(fd, 4096)
        leaders = {job.leader: job for job in self.jobs.values()}
        for pid, status in census.reap():
            if pid in leaders:
                leaders[pid].leader_ended(status)

    # The run.

    def run(self, on_input: Callable[[int, int], object]) -> None:
        """Serve.

        Raises:
            HarnessGone: The stream to the harness ended; the caller ends the process, and so all of the sandbox.
        """
        self.watch(self._source, select.EPOLLIN, on_input)
        while True:
            # Writability needs no handler: the outbox is flushed on every round.
            self.watch(self._sink, select.EPOLLOUT if self.outbox.size else 0, _nothing)
            for fd, events in self._epoll.poll(self._patience()):
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler(fd, events)
            self._run_due()
            while self._soon:
                self._soon.popleft()()
            self._fill()
            self.outbox.flush()

    def _patience(self) -> float | None:
        # What waits for room is served at the end of a round; the last flush may have made some.
        if self._soon or ((self.sources or self._held) and not self.outbox.full):
            return 0
        due = min((alarm.wake_at for alarm in self._alarms()), default=FOREVER)
        return None if due == FOREVER else max(0.0, due - self.now())

    def _run_due(self) -> None:
        for alarm in self._alarms():
            if alarm.wake_at <= self.now():
                alarm.on_time()

    def _alarms(self) -> list[Job | Stopping | Crowding]:
        return [*self.jobs.values(), *self.stopping, *self.watches]

    def _fill(self) -> None:
        for request, source in list(self.sources.items()):
            if self.outbox.full:
                return
            if not source.step():
                self.sources.pop(request, None)
        while self._held and not self.outbox.full:
            self._held.pop().resume()


def _children_wake() -> int:
    """Give a descriptor that becomes readable when a child ends."""
    wake, noted = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(noted, False)
    signal.set_wakeup_fd(noted, warn_on_full_buffer=False)
    # Without a handler of Python's own the wake-up byte is not written.
    signal.signal(signal.SIGCHLD, _nothing)
    # As PID 1 everything without a handler is ignored; Python has one for SIGINT. SIGXCPU comes of a lent limit.
    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU):
        signal.signal(which, signal.SIG_IGN)
    return wake


def _nothing(_first: int, _second: object) -> None:
    """Handle what is news enough by waking the loop."""
