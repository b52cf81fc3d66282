"""An event loop in a thread of its own that holds one asynchronous resource open, for synchronous callers.

The thread is a daemon and is stopped by a finalizer, so a forgotten ``close`` neither hangs the interpreter's exit nor
leaves a sandbox behind.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeVar

R = TypeVar("R")
T = TypeVar("T")

_Job = tuple[Callable[[Any], Awaitable[Any]], "Future[Any]"]


class LoopThread(Generic[R]):
    """Opens a resource in its thread, runs calls on it one after another, and closes it there.

    Opening and closing happen in one task, as cancel scopes and timeouts demand; each call runs in a task of its own,
    so that it can be cancelled alone, and ends before the next begins.
    """

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[R]]) -> None:
        """Start the thread and wait until the resource is open.

        Raises:
            Exception: Whatever opening raises.
        """
        jobs: Future[tuple[asyncio.AbstractEventLoop, asyncio.Queue[_Job | None]]] = Future()
        ended: Future[None] = Future()
        thread = threading.Thread(target=_serve, args=(opener, jobs, ended), name="agentenv environment", daemon=True)
        thread.start()
        self._loop, self._queue = jobs.result()
        self._stop = weakref.finalize(self, _stop, self._loop, self._queue, thread, ended)

    def call(self, work: Callable[[R], Awaitable[T]]) -> T:
        """Run ``work(resource)`` in the loop and wait for it; an interrupt of the waiting thread cancels it."""
        answer: Future[T] = Future()
        self._loop.call_soon_threadsafe(self._queue.put_nowait, (work, answer))
        try:
            return answer.result()
        except BaseException:
            answer.cancel()
            raise

    def close(self) -> None:
        """Close the resource and end the thread. May be called twice.

        Raises:
            Exception: Whatever closing raises; only the first call raises it.
        """
        error = self._stop()
        if error is not None:
            raise error


def _serve(opener: Callable[[], AbstractAsyncContextManager[Any]], started: Future[Any], ended: Future[None]) -> None:
    try:
        asyncio.run(_work(opener, started))
    except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for it
        (ended if started.done() else started).set_exception(error)
    else:
        ended.set_result(None)


async def _work(opener: Callable[[], AbstractAsyncContextManager[Any]], started: Future[Any]) -> None:
    queue: asyncio.Queue[_Job | None] = asyncio.Queue()
    async with opener() as resource:
        started.set_result((asyncio.get_running_loop(), queue))
        while (job := await queue.get()) is not None:
            work, answer = job
            await _answer(work, resource, answer)


async def _answer(work: Callable[[Any], Awaitable[Any]], resource: Any, answer: Future[Any]) -> None:
    """Run one call; cancel it when nobody waits for its answer any more."""
    task = asyncio.ensure_future(work(resource))
    loop = asyncio.get_running_loop()
    answer.add_done_callback(lambda _: loop.call_soon_threadsafe(task.cancel))
    await asyncio.wait([task])
    if answer.cancelled() or not answer.set_running_or_notify_cancel():
        return
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())


def _stop(
    loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[_Job | None], thread: threading.Thread, ended: Future[None]
) -> BaseException | None:
    """End the thread; give what closing raised, for a finalizer must not raise."""
    with suppress(RuntimeError):  # the loop is closed already
        loop.call_soon_threadsafe(queue.put_nowait, None)
    thread.join()
    return ended.exception()
