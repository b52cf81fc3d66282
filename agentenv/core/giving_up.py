"""Waiting for code of others that may not heed being cancelled (law 12)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, NoReturn, TypeVar

from agentenv.core.deadline import Deadline
from agentenv.core.lifetime import finish

T = TypeVar("T")

_log = logging.getLogger(__name__)

_LAST_S = 40.0
"""For what was cancelled to put its affairs in order: longer than closing a sandbox may take."""


async def wait_until(deadline: Deadline, work: Awaitable[T], *, whose: str, last_s: float = _LAST_S) -> T:
    """Await ``work`` until ``deadline``; then, or when the caller is cancelled, cancel it; give it up if it goes on.

    Code that swallows its cancellation (``except:`` in a loop that tries again) would hold its episode for ever. It is
    closed by force where it waits; what resists that too is left behind, and can do no more than waste time.

    Args:
        deadline: When to stop waiting.
        work: A coroutine or the like of somebody else's. What it raises, ``SystemExit`` included, is raised here.
        whose: Whose it is, for the log.
        last_s: Seconds from its cancellation until it is given up.

    Raises:
        DeadlineReached: ``deadline`` fired.
        asyncio.CancelledError: The caller was cancelled; or the work raised it itself.
    """
    running = _outcome(work)
    task = asyncio.ensure_future(running)
    try:
        async with deadline.enforce():
            await asyncio.wait([task])
    except BaseException:
        await _stop(task, running, whose, last_s)
        raise
    return task.result()()


async def _outcome(work: Awaitable[T]) -> Callable[[], T]:
    """Give what gives or raises the result. A task that itself raised ``SystemExit`` would end the loop."""
    try:
        result = await work
    except SystemExit as error:
        return partial(_raise, error)
    return lambda: result


def _raise(error: SystemExit) -> NoReturn:
    raise error


async def _stop(task: asyncio.Task[Any], running: Coroutine[Any, Any, Any], whose: str, last_s: float) -> None:
    task.cancel()
    task.add_done_callback(_look_away)
    if not task.done() and not await finish(asyncio.wait([task]), last_s):
        _log.warning("%s went on for %g s after it was cancelled, and was given up", whose, last_s)
        with contextlib.suppress(RuntimeError, ValueError):  # it resists, or is at work just now
            running.close()
        task.cancel()  # what it waited for may never come now: let the task find out that there is no work left


def _look_away(task: asyncio.Task[Any]) -> None:
    """Take note of how it ended, so that nobody complains that nobody did."""
    if not task.cancelled():
        task.exception()
