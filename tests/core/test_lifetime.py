"""Cleanup that ends: through cancellation once or again, within a grace; and cancellations that are handed on."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from agentenv.core.lifetime import cancel_at_next_await, finish, first_of


async def ticks(n: int) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


@pytest.mark.parametrize("cancellations", [0, 1, 3])
async def test_a_cleanup_ends_however_often_its_caller_is_cancelled(cancellations: int) -> None:
    """The cancellation comes back once the cleanup is over."""
    done = False

    async def cleanup() -> None:
        nonlocal done
        await ticks(10)
        done = True

    task = asyncio.ensure_future(finish(cleanup(), 60.0))
    for _ in range(cancellations):
        await ticks(2)
        task.cancel()
    await asyncio.wait([task])
    assert done
    assert task.cancelled() == (cancellations > 0)


async def test_a_cleanup_ends_in_a_cancelled_scope() -> None:
    done = False

    async def cleanup() -> None:
        nonlocal done
        await ticks(10)
        done = True

    with anyio.CancelScope() as scope:
        scope.cancel()
        await finish(cleanup(), 60.0)
        assert done
        await anyio.sleep(0)
    assert scope.cancelled_caught


async def test_a_cleanup_that_hangs_is_cut_at_the_grace() -> None:
    """It is cancelled, and its own end is still waited for."""
    ended = False

    async def hang() -> None:
        nonlocal ended
        try:
            await asyncio.Event().wait()
        finally:
            ended = True

    assert await finish(hang(), 0.01) is False
    assert ended


async def test_what_a_cleanup_raises_is_raised() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await finish(fail(), 60.0)


class TestHandingOn:
    """An operation that had its effect returns, and the cancellation comes at the next wait."""

    @staticmethod
    async def effect(log: list[str]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as cancelled:
            log.append("effect")
            cancel_at_next_await(cancelled)

    async def test_the_caller_takes_note_first(self) -> None:
        log: list[str] = []

        async def caller() -> None:
            await self.effect(log)
            log.append("noted")
            await asyncio.Event().wait()
            log.append("never")

        task = asyncio.ensure_future(caller())
        await ticks(1)
        task.cancel("why")
        await asyncio.wait([task])
        assert task.cancelled()
        assert log == ["effect", "noted"]

    async def test_a_caller_that_waits_no_more_is_cancelled_all_the_same(self) -> None:
        log: list[str] = []
        task = asyncio.ensure_future(self.effect(log))
        await ticks(1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    async def test_a_timeout_stays_a_timeout(self) -> None:
        """`asyncio.timeout` tells its own cancellation by a count, which must not change."""
        log: list[str] = []

        async def body() -> None:
            async with asyncio.timeout(0):
                await self.effect(log)
                await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            await body()
        assert log == ["effect"]
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    async def test_a_scope_stays_a_scope(self) -> None:
        log: list[str] = []
        with anyio.move_on_after(0) as scope:
            await self.effect(log)
            await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert log == ["effect"]

    def test_ctrl_c_stays_ctrl_c(self) -> None:
        """`asyncio.run` tells a Ctrl-C by the same count."""
        import signal

        async def main() -> None:
            signal.raise_signal(signal.SIGINT)
            await self.effect([])
            await asyncio.Event().wait()

        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())


def test_the_first_of_a_group_is_found_at_any_depth() -> None:
    first = ValueError("first")
    groups = ExceptionGroup("a", [ExceptionGroup("b", [first, KeyError()]), TypeError()])
    assert first_of(groups) is first
