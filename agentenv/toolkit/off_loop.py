"""Work on data that may be large, kept off the event loop, so that no episode holds up the others.

A thread alone does not do: whatever is one step of the interpreter's (decoding a text of megabytes, splitting it) holds
every thread. So what is called here works in pieces of about `PIECE` bytes or characters, or leaves the interpreter
(hashing, files).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

PIECE = 1 << 14
"""One to three milliseconds at the slowest, which is escaping every character."""
_AT_ONCE = 1 << 12


async def off_loop(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function with data of ``size`` bytes or characters: at once if that is soon done, else in a thread.

    Raises:
        Whatever ``work`` does.
    """
    if size <= _AT_ONCE:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
