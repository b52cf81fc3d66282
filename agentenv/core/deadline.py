"""One deadline authority: moments on the monotonic clock, passed down, never durations.

Whoever owns an operation makes its deadline once; everything below gets the same object or an earlier one. When time
runs out, `DeadlineReached` carries the very object that fired, so a foreign ``TimeoutError`` can never be mistaken
for ours (law 12).
"""

from __future__ import annotations

import asyncio
import math
import time
from types import TracebackType

from agentenv.errors import AgentEnvError


class DeadlineReached(AgentEnvError):
    """A deadline of ours fired. ``deadline`` is the object that did."""

    def __init__(self, message: str, deadline: Deadline | None = None) -> None:
        super().__init__(message)
        self.deadline = deadline


class Deadline:
    """A moment on ``time.monotonic``, with the name of what it limits."""

    __slots__ = ("at", "enforced_in", "name")

    def __init__(self, name: str, at: float = math.inf) -> None:
        self.name = name
        self.at = at
        self.enforced_in: asyncio.Task[object] | None = None
        """The task that is inside `enforce`: further down in it, a second timer for the same moment adds nothing."""

    @classmethod
    def after(cls, seconds: float, name: str) -> Deadline:
        """Make the deadline ``seconds`` from now."""
        return cls(name, time.monotonic() + seconds)

    def sooner(self, seconds: float, name: str) -> Deadline:
        """Make a sub-deadline ``seconds`` from now, or this one if it comes first."""
        at = time.monotonic() + seconds
        return Deadline(name, at) if at < self.at else self

    @property
    def remaining_s(self) -> float:
        """Seconds left; negative when past, ``inf`` when there is no limit."""
        return self.at - time.monotonic()

    @property
    def passed(self) -> bool:
        """Whether the moment is behind us."""
        return self.remaining_s <= 0

    def enforce(self) -> Enforcement:
        """Cancel the body of ``async with`` when the moment comes, and raise `DeadlineReached` with this object.

        A ``TimeoutError`` the body raises itself passes through unchanged. Entered again within the body, by whoever
        the deadline was passed down to, it does nothing: the body is cancelled as a whole.
        """
        return Enforcement(self)

    def __repr__(self) -> str:
        return f"Deadline({self.name!r}, remaining_s={self.remaining_s:.3f})"


class Enforcement:
    """What `Deadline.enforce` gives: enters once.

    `asyncio.timeout` written out, because every call of a policy goes through it.
    """

    __slots__ = ("_cancelling", "_deadline", "_fired", "_outermost", "_task", "_timer")

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cancelling = 0
        self._fired = False
        self._outermost = False

    async def __aenter__(self) -> None:
        deadline, task = self._deadline, asyncio.current_task()
        assert task is not None, "deadlines are enforced in tasks"
        if deadline.at == math.inf or deadline.enforced_in is task:
            return
        self._task, self._cancelling = task, task.cancelling()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(loop.time() + deadline.remaining_s, self._fire)
        if deadline.enforced_in is None:
            deadline.enforced_in, self._outermost = task, True

    def _fire(self) -> None:
        assert self._task is not None, "the timer is set by a task"
        self._fired = True
        self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is None or self._task is None:
            return
        self._timer.cancel()
        if self._outermost:
            self._deadline.enforced_in = None
        if not self._fired:
            return
        ours = self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)
        if ours or isinstance(error, TimeoutError):
            raise DeadlineReached(f"the deadline of {self._deadline.name} fired", self._deadline) from error
