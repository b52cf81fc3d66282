"""A thread pool without threads, for tests that count passes of the event loop."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class AtOnce(ThreadPoolExecutor):
    """Does everything when it is asked to, so that what the loop is told of it comes at a pass that can be counted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - as a thread does
            future.set_exception(error)
        return future
