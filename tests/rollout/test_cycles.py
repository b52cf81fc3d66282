"""Searches for reference cycles are rarer while a run collects, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from agentenv.rollout.cycles import rare_cycle_searches


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_the_threshold_is_raised_within_and_put_back() -> None:
    gc.set_threshold(700, 10, 10)
    with rare_cycle_searches():
        assert gc.get_threshold() == (50_000, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("threshold", [0, 100_000])
def test_somebody_elses_choice_stands(threshold: int) -> None:
    """A process that searches more rarely, or never, goes on as it does."""
    gc.set_threshold(threshold, 10, 10)
    with rare_cycle_searches():
        assert gc.get_threshold() == (threshold, 10, 10)
    assert gc.get_threshold() == (threshold, 10, 10)
