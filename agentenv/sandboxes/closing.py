"""Closing several things, side by side and all of them, whatever becomes of one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from agentenv.errors import SandboxFault


async def close_all(closings: Sequence[Awaitable[object]], *, whose: str) -> None:
    """Await all of them to their ends.

    Args:
        closings: What closes, each within a time of its own.
        whose: What is being closed, for the error: ``the sandboxes of ...``.

    Raises:
        SandboxFault: Some failed, after the others are done; its cause has every one's error.
    """
    ended = await asyncio.gather(*closings, return_exceptions=True)
    errors = [error for error in ended if isinstance(error, Exception)]
    if errors:
        said = "; ".join(dict.fromkeys(f"{type(error).__name__}: {error}" for error in errors))
        raise SandboxFault(f"closing {whose}: {len(errors)} of {len(closings)} failed: {said}") from ExceptionGroup(
            "failed to close", errors
        )


async def end_of(work: asyncio.Future[Any]) -> None:
    """Wait for a task, without ending it when the waiting ends; raise what it raised."""
    await asyncio.wait([work])
    if not work.cancelled() and (error := work.exception()) is not None:
        raise error
