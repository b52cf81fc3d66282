"""One job: a process the harness asked for, what it starts, and its streams. Commands and kept processes build on it.

A job ends in steps, each driven by the event loop and none of them waiting: its leader is gone or doomed; whatever it
left is killed, repeatedly, until nobody unaccounted for is alive; its pipes are drained; `ended` is called.
"""

from __future__ import annotations

import fcntl
import os
import select

from agentenv.sandboxes.supervisor.lean import signal, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentenv.sandboxes.supervisor.loop import Loop
    from agentenv.sandboxes.supervisor.spawning import Child

FOREVER = float("inf")

_READ = 1 << 18
"""More than a pipe holds, unless it was widened."""
_SWEEP_S = 0.002
"""Between two rounds of killing."""
_PATIENCE_S = 0.25
"""Of killing one by one, before everybody in the sandbox is killed at once; and again of waiting for the dead to leave.
What has been sent SIGKILL runs no instruction of its own any more, so the end need not wait for it longer."""
_UNDECIDED_S = 5.0
"""For a process to become another program, when it is stopped meanwhile; what then cannot be told is killed."""
_DRAIN_S = 0.1
"""For what is still in the pipes; a process of another job may hold them open."""
_DRAIN_READS = 32
_WIDE = 1 << 19


class Job:
    """See the module."""

    def __init__(self, loop: Loop, id: int, child: Child, mark: bytes) -> None:
        self.loop = loop
        self.id = id
        self.mark = mark
        self.leader = child.pid
        self.started_at = loop.now()
        self.wake_at = FOREVER
        """When `on_time` is next to be called."""
        self.killed: set[int] = set()
        self.why = b""
        """Why the supervisor ended it; empty if it did not, or was told to."""
        self._status: int | None = None
        self._dying_since = FOREVER
        self._swept_at = FOREVER
        self._stdin = child.stdin
        self._feed: list[memoryview] = []
        self._closing_stdin = False
        self._streams = {child.stdout: "out", child.stderr: "err"}
        for fd in self._streams:
            loop.watch(fd, select.EPOLLIN, self._on_stream)

    # What the kinds of jobs say.

    def received(self, stream: str, chunk: bytes) -> None:
        """Take output."""
        raise NotImplementedError

    def ended(self) -> None:
        """Report the end; nothing of the job is alive."""
        raise NotImplementedError

    def stream_ended(self) -> None:
        """Note that a stream has ended."""

    def stdin_taken(self) -> None:
        """Note that all that was fed has been taken."""

    def stdin_closed(self, *, left: bool) -> None:
        """Note that stdin is closed, and whether some of what was fed is left."""

    # What the loop calls.

    @property
    def counts(self) -> bool:
        """Whether its processes may live."""
        return self._status is None and self._dying_since == FOREVER

    @property
    def exit_code(self) -> int:
        """Exit code as a shell counts."""
        code = os.waitstatus_to_exitcode(self._status) if self._status is not None else -signal.SIGKILL
        return 128 - code if code < 0 else code

    def leader_ended(self, status: int) -> None:
        """Note that the leader was reaped, and see to what it left."""
        self._status = status
        if self._dying_since == FOREVER:
            self.die()

    def on_time(self) -> None:
        """Do what is due."""
        self._sweep()

    def pause(self) -> None:
        """Stop reading the streams; the processes wait."""
        for fd in self._streams:
            self.loop.change(fd, 0)

    def resume(self) -> None:
        """Read them again."""
        for fd in self._streams:
            self.loop.change(fd, select.EPOLLIN)

    # What the kinds use.

    def die(self) -> None:
        """Begin the end: from now on nothing of the job may live."""
        if self._dying_since == FOREVER:
            self._dying_since = self.loop.now()
            self._sweep()

    def end_for(self, why: bytes) -> None:
        """Begin the end, for a reason that is told."""
        if self.counts:
            self.why = why
            self.die()

    def feed(self, data: bytes, *, last: bool) -> None:
        """Queue bytes for stdin; close it after the last."""
        if self._stdin < 0:
            return
        if data:
            self._feed.append(memoryview(data))
        self._closing_stdin = self._closing_stdin or last
        self._write()

    def widen(self, stream: str) -> None:
        """Give a stream that carries much a pipe that holds more, if the user's share of such memory allows."""
        for fd, name in self._streams.items():
            if name == stream:
                with suppress(OSError):
                    fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _WIDE)

    # The steps of the end.

    def _sweep(self) -> None:
        if self._dying_since == FOREVER:
            return
        now = self.loop.now()
        if self._swept_at == FOREVER:
            late = now - self._dying_since
            killed, undecided = self.loop.sweep(patient=late < _UNDECIDED_S)
            if killed - self.killed and late > _PATIENCE_S:
                self.loop.kill_everyone()
            self.killed |= killed
            if undecided or ((killed or self._status is None) and late <= 2 * _PATIENCE_S):
                self.wake_at = now + _SWEEP_S
                return
            self._swept_at = now
        self._drain()
        if self._streams and now < self._swept_at + _DRAIN_S:
            self.wake_at = now + _SWEEP_S
            return
        self._close()

    def _drain(self) -> None:
        for fd in list(self._streams):
            for _ in range(_DRAIN_READS):
                if fd not in self._streams or not self._on_stream(fd, select.EPOLLIN):
                    break

    def _close(self) -> None:
        self.wake_at = FOREVER
        for fd in list(self._streams):
            self._drop(fd)
        self._close_stdin()
        self.killed.discard(self.leader)
        self.loop.job_ended(self)
        self.ended()

    # The streams.

    def _on_stream(self, fd: int, _events: int) -> bool:
        """Take what is there; say whether there may be more."""
        try:
            chunk = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if chunk:
            self.received(self._streams[fd], chunk)
        else:
            self._drop(fd)
        return bool(chunk)

    def _drop(self, fd: int) -> None:
        del self._streams[fd]
        self.loop.unwatch(fd)
        os.close(fd)
        self.stream_ended()

    def _write(self) -> None:
        while self._feed:
            try:
                written = os.write(self._stdin, self._feed[0])
            except BlockingIOError:
                self.loop.watch(self._stdin, select.EPOLLOUT, self._on_writable)
                return
            except OSError:
                self._close_stdin()  # nobody reads it any more
                return
            self._feed[0] = self._feed[0][written:]
            if not self._feed[0]:
                del self._feed[0]
        self.loop.unwatch(self._stdin)
        if self._closing_stdin:
            self._close_stdin()
        else:
            self.stdin_taken()

    def _on_writable(self, _fd: int, _events: int) -> None:
        self._write()

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            left = bool(self._feed)
            self._feed.clear()
            self.loop.unwatch(self._stdin)
            os.close(self._stdin)
            self._stdin = -1
            self.stdin_closed(left=left)
