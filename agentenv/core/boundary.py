"""Where code of others is called: whatever it raises ends its own episode, and no more than that."""

from __future__ import annotations

import asyncio


def is_its_own(error: BaseException) -> bool:
    """Say whether an exception is the affair of the code that raised it.

    True of every `Exception`, and of two that are none: ``SystemExit`` (an argument parser in a tool, say), by which
    asyncio would end the program, and a cancellation that nobody asked of this task. False of a cancellation that was
    asked for, and of Ctrl-C.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()
    return isinstance(error, (Exception, SystemExit))
