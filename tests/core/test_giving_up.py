"""Law 12: code of others that does not heed its cancellation is given up, and holds nobody."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable

import pytest
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.giving_up import wait_until

NEVER = Deadline("no limit")


def soon() -> Deadline:
    return Deadline.after(0.02, "test")


async def stubborn() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


async def polite(notes: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        notes.append("tidied up")


async def test_a_result_is_given_and_what_is_raised_is_raised() -> None:
    async def five() -> int:
        await asyncio.sleep(0)
        return 5

    async def failing(error: BaseException) -> None:
        await asyncio.sleep(0)
        raise error

    assert await wait_until(NEVER, five(), whose="five") == 5
    for error in (ValueError("x"), asyncio.CancelledError(), SystemExit(3)):
        with pytest.raises(type(error)) as caught:
            await wait_until(NEVER, failing(error), whose="failing")
        assert isinstance(error, asyncio.CancelledError) or caught.value is error


async def test_exit_ends_nothing_else() -> None:
    async def exiting() -> None:
        sys.exit(3)

    with pytest.raises(SystemExit):
        await wait_until(NEVER, exiting(), whose="exiting")
    await asyncio.sleep(0)


async def test_what_heeds_its_cancellation_tidies_up_first() -> None:
    notes: list[str] = []
    deadline = soon()
    with pytest.raises(DeadlineReached) as caught:
        await wait_until(deadline, polite(notes), whose="polite")
    assert caught.value.deadline is deadline
    assert notes == ["tidied up"]


async def test_what_does_not_is_closed_where_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    before = asyncio.all_tasks()
    with pytest.raises(DeadlineReached):
        await wait_until(soon(), stubborn(), whose="the grader", last_s=0.02)
    assert "the grader went on" in caplog.text
    await asyncio.wait(asyncio.all_tasks() - before or [asyncio.ensure_future(asyncio.sleep(0))])
    assert asyncio.all_tasks() == before


async def test_a_caller_that_is_cancelled_gives_it_up_too() -> None:
    caller = asyncio.ensure_future(wait_until(NEVER, stubborn(), whose="a tool", last_s=0.02))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()


@pytest.mark.parametrize("make", [lambda: asyncio.sleep(0, 5), lambda: asyncio.ensure_future(asyncio.sleep(0, 5))])
async def test_anything_awaitable_will_do(make: Callable[[], Awaitable[int]]) -> None:
    assert await wait_until(NEVER, make(), whose="five") == 5
