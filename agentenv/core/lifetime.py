"""Owned resources, and cleanup that ends.

A resource is opened with ``async with`` by the function that owns it; ``aclose`` may be called twice. Cleanup goes
through `finish`, which survives cancellation and ends within a grace.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

import anyio


class AsyncResource(ABC):
    """Something that is opened, used, and closed by its owner."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    @abstractmethod
    async def aclose(self) -> None:
        """Release everything. May be called twice, and by a cancelled task."""


def first_of(errors: BaseExceptionGroup) -> BaseException:
    """Give the first single exception of a group, for where tasks side by side are one operation to its caller."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def cancel_at_next_await(cancelled: asyncio.CancelledError) -> None:
    """Hand a cancellation on that came when its task could no longer be stopped without a trace.

    For an operation that has had its effect when the cancellation arrives: it returns, so that its caller can take note
    of the effect, and the cancellation comes again at the caller's next wait.
    """
    task = asyncio.current_task()
    assert task is not None, "only a task can be cancelled"
    task.uncancel()  # the request is counted already, and `asyncio.timeout` and `asyncio.run` go by that count
    task.cancel(*cancelled.args)


async def finish(cleanup: Coroutine[Any, Any, object], grace_s: float) -> bool:
    """Run ``cleanup`` to its end through cancellation of the caller, for at most ``grace_s`` seconds.

    Returns:
        Whether the cleanup ended by itself. False means that it was cut at the grace.

    A bare ``asyncio.shield`` lets the caller leave and orphans the cleanup; a shielded scope alone is cut short by a
    second ``cancel()``. Here the cleanup has a task of its own, and the shielded wait for it starts again after
    every cancellation; the cancellation is re-raised when the cleanup is over.
    """
    task = asyncio.ensure_future(cleanup)
    deadline = anyio.current_time() + grace_s
    cancelled: asyncio.CancelledError | None = None
    ended = True
    try:
        await asyncio.sleep(0)  # mostly there is little to clean up, and no more waiting than this
    except asyncio.CancelledError as error:
        cancelled = error
    with anyio.CancelScope(shield=True):
        while not task.done():
            left = deadline - anyio.current_time()
            if left <= 0:
                ended = False
                task.cancel()
                deadline = float("inf")
                continue
            try:
                await asyncio.wait([task], timeout=None if left == float("inf") else left)
            except asyncio.CancelledError as error:
                cancelled = error
    if not task.cancelled() and (error := task.exception()) is not None and cancelled is None:
        raise error
    if cancelled is not None:
        raise cancelled
    return ended
