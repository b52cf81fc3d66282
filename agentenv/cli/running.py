"""Runs a coroutine for a command, so that SIGTERM ends it as Ctrl-C does."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; both signals cancel the work, which then puts its affairs in order.

    Raises:
        KeyboardInterrupt: It was interrupted.
    """
    import asyncio

    try:
        return asyncio.run(_until_signal(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _until_signal(work: Coroutine[Any, Any, T]) -> T:
    import asyncio
    import signal

    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work
