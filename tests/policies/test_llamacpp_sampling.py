"""How slices become a reply: alignment of log-probs, seeds, stop tokens, slots. No engine."""

from __future__ import annotations

import asyncio
from array import array

import pytest
from agentenv.errors import PolicyServerFault
from agentenv.policies.llamacpp_sampling import align, common_prefix, slice_seed
from agentenv.policies.llamacpp_slots import SlotBook
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def sampled_and_reported(draw: st.DrawFn) -> tuple[list[int], list[bool]]:
    ids = draw(st.lists(st.integers(0, 4), max_size=14))
    return ids, draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))


@given(sampled_and_reported())
def test_a_logprob_stands_beside_its_own_token_or_is_null(case: tuple[list[int], list[bool]]) -> None:
    """Law 2: position i carries a log-prob only if it belongs to token i; missing is null."""
    ids, reported = case
    scored = [(token, -1.0 - at) for at, token in enumerate(ids) if reported[at]]
    aligned = align(ids, scored)
    assert len(aligned) == len(ids)
    for at, value in enumerate(aligned):
        assert value is None or (reported[at] and value == -1.0 - at)


@given(st.lists(st.integers(0, 9), unique=True, max_size=10), st.data())
def test_alignment_of_distinct_tokens_is_complete(ids: list[int], data: st.DataObject) -> None:
    """Law: where there is only one way to align, nothing is lost."""
    reported = [data.draw(st.booleans()) for _ in ids]
    scored = [(token, -float(at)) for at, token in enumerate(ids) if reported[at]]
    assert [value is not None for value in align(ids, scored)] == reported


def test_a_logprob_of_a_token_that_was_not_sampled_is_a_fault() -> None:
    with pytest.raises(PolicyServerFault, match="id 9"):
        align([1, 2, 3], [(1, -1.0), (9, -1.0)])


def test_a_null_logprob_stays_null() -> None:
    assert align([1, 2], [(1, None), (2, -0.5)]) == [None, -0.5]


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(0, 8192))
def test_distinct_seeds_stay_distinct_in_every_slice(one: int, other: int, at: int) -> None:
    """Law: two calls with distinct seeds draw with distinct seeds at the same position."""
    assert (slice_seed(one, at) == slice_seed(other, at)) is (one == other)
    assert 0 <= slice_seed(one, at) < 0xFFFFFFFF


@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), max_size=8))
def test_the_common_prefix_is_the_longest(one: list[int], other: list[int]) -> None:
    """Law: the first n ids are equal and the next, if both have one, is not."""
    n = common_prefix(array("i", one), array("i", other))
    assert one[:n] == other[:n]
    assert n == min(len(one), len(other)) or one[n] != other[n]


async def test_the_slot_that_holds_most_of_the_prompt_is_taken() -> None:
    book = SlotBook(3)
    leases = [await book.take(array("i", [7])) for _ in range(3)]
    for lease, held in zip(leases, ([1, 2], [1, 2, 3, 4], []), strict=True):
        book.give_back(lease, array("i", held))
    lease = await book.take(array("i", [1, 2, 3, 9]))
    assert (lease.index, lease.n_held) == (leases[1].index, 3)
    assert book.n_leased == 1


async def test_a_call_waits_for_a_free_slot_and_a_cancelled_one_takes_none() -> None:
    book = SlotBook(1)
    first = await book.take(array("i", [1]))
    waiting, cancelled = (asyncio.ensure_future(book.take(array("i", [1]))) for _ in range(2))
    await asyncio.sleep(0)
    assert not waiting.done()
    cancelled.cancel()
    book.give_back(first, array("i", [1]))
    assert (await waiting).n_held == 1
    assert book.n_leased == 1
