"""Law 12: a timeout is identified by the deadline that fired, never by an exception's name."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from agentenv.core.deadline import Deadline, DeadlineReached
from hypothesis import given
from hypothesis import strategies as st


def fired(name: str = "inner") -> Deadline:
    return Deadline.after(0.0, name)


async def hang() -> None:
    await asyncio.Event().wait()


async def test_the_deadline_that_fired_is_the_object_raised() -> None:
    """Law 12: identity by object, through two that are nested and of one name."""
    outer, inner = Deadline.after(3600.0, "same name"), fired("same name")
    with pytest.raises(DeadlineReached, match="the deadline of same name fired") as caught:
        async with outer.enforce(), inner.enforce():
            await hang()
    assert caught.value.deadline is inner
    outer, inner = inner, outer
    with pytest.raises(DeadlineReached) as caught:
        async with outer.enforce(), inner.enforce():
            await hang()
    assert caught.value.deadline is outer


async def test_a_foreign_timeout_passes_through_as_it_is() -> None:
    """Law 12: never by an exception's name: somebody else's ``TimeoutError`` is not ours."""
    foreign = TimeoutError("theirs")
    for deadline in (Deadline("none"), Deadline.after(3600.0, "far")):
        with pytest.raises(TimeoutError) as caught:
            async with deadline.enforce():
                raise foreign
        assert caught.value is foreign


async def test_a_timeout_inside_does_not_look_like_the_one_outside() -> None:
    far = Deadline.after(3600.0, "far")
    with pytest.raises(TimeoutError):
        async with far.enforce(), asyncio.timeout(0):
            await hang()


async def test_a_cancellation_from_outside_is_no_timeout() -> None:
    async def body() -> None:
        async with Deadline.after(3600.0, "far").enforce():
            await hang()

    task = asyncio.ensure_future(body())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_no_limit_never_fires() -> None:
    async with Deadline("none").enforce():
        await asyncio.sleep(0)


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=8))
def test_a_sub_deadline_is_the_earlier_of_the_two(limits: list[float]) -> None:
    """Law 12: what is passed down is the same object or an earlier one, so that the first to fire is known."""
    deadline = Deadline("the episode")
    assert not deadline.passed
    for number, seconds in enumerate(limits):
        sub = deadline.sooner(seconds, f"{number}")
        assert sub is deadline or sub.at < deadline.at
        deadline = sub
    assert deadline.remaining_s <= min(limits)


def test_a_passed_deadline_says_so() -> None:
    assert fired().passed
    assert fired().remaining_s <= 0.0
    assert "inner" in repr(fired())


def test_it_travels() -> None:
    error = DeadlineReached("the deadline of x fired", Deadline.after(1.0, "x"))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)


async def test_entered_again_within_its_own_body_one_timer_cancels_the_whole() -> None:
    """A deadline is passed down, and everyone on the way may enforce it: the outermost says that it fired."""
    deadline = fired()
    passed_on: list[type[BaseException]] = []

    async def below() -> None:
        try:
            async with deadline.enforce():
                await hang()
        except BaseException as error:
            passed_on.append(type(error))
            raise

    with pytest.raises(DeadlineReached) as caught:
        async with deadline.enforce():
            await below()
    assert caught.value.deadline is deadline
    assert passed_on == [asyncio.CancelledError]
    assert deadline.enforced_in is None


async def test_each_task_that_shares_a_deadline_has_its_own_timer() -> None:
    deadline = fired()

    async def wait() -> None:
        async with deadline.enforce():
            await hang()

    for raised in await asyncio.gather(wait(), wait(), wait(), return_exceptions=True):
        assert isinstance(raised, DeadlineReached)
        assert raised.deadline is deadline
