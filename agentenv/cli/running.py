"""Runs a coroutine for a command: Ctrl-C and SIGTERM end it alike, once, however often they come."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

_PATIENCE_S = 5.0
"""After the first signal, for putting affairs in order; a signal that comes later ends the process at once."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; both signals cancel the work, which then puts its affairs in order.

    Raises:
        KeyboardInterrupt: It was interrupted. Further signals are ignored from then on: little is left to do.
    """
    import asyncio
    import signal

    try:
        return asyncio.run(_until_signal(work))
    except (asyncio.CancelledError, KeyboardInterrupt):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt from None


async def _until_signal(work: Coroutine[Any, Any, T]) -> T:
    import asyncio
    import signal

    task = asyncio.current_task()
    assert task is not None
    ending = _Ending(task)
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as it is of what a shell starts in the background
            asyncio.get_running_loop().add_signal_handler(number, ending.on_signal)
    return await work


class _Ending:
    """What signals come to."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._began_at: float | None = None

    def on_signal(self) -> None:
        """Cancel the work at the first one, give up at one that comes when that takes too long."""
        import os
        import sys
        import time

        now = time.monotonic()
        if self._began_at is None:
            self._began_at = now
            self._task.cancel()
        elif now > self._began_at + _PATIENCE_S:
            os._exit(130)
        else:
            print("Ending what is under way …", file=sys.stderr)
