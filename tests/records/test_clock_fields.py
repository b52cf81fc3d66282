"""Comparing records without their clocks: what is left out is listed exactly, and nothing else is."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import replace
from typing import Any

from agentenv.records.axes import BudgetKind, BudgetOwner
from agentenv.records.budgets import BudgetState
from agentenv.records.clock_fields import CLOCK_FIELDS, Difference, differences, without_clocks
from agentenv.records.episode import EpisodeRecord
from agentenv.testing.episodes import EpisodeBuilder, episode_records, reply
from hypothesis import given


def reachable(kind: Any, found: set[type]) -> set[type]:
    """Every dataclass that a record is made of."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind not in found:
        found.add(kind)
        for hint in typing.get_type_hints(kind).values():
            reachable(hint, found)
    for part in typing.get_args(kind):
        reachable(part, found)
    return found


def test_every_field_that_holds_seconds_is_listed() -> None:
    """A field named in seconds is a clock field; a record type that gets one must say so here."""
    seconds = {
        kind: frozenset(field.name for field in dataclasses.fields(kind) if field.name.endswith("_s"))
        for kind in reachable(EpisodeRecord, set())
    }
    assert {kind: names for kind, names in seconds.items() if names} == CLOCK_FIELDS


def example(**changes: Any) -> EpisodeRecord:
    spent = [
        BudgetState(name=f"collector.{kind}", kind=kind, owner=BudgetOwner.COLLECTOR, limit=9, spent=spent)
        for kind, spent in ((BudgetKind.WALL_CLOCK, 1.5), (BudgetKind.TURNS, 2))
    ]
    builder = EpisodeBuilder().prompt([1, 2]).turn(reply([3]), generating_s=0.7, budgets=tuple(spent))
    return builder.end(**{"budgets": tuple(spent), "elapsed_s": 4.0, **changes})


def test_clocks_and_attempts_do_not_count() -> None:
    ours = example()
    theirs = example(elapsed_s=9.0, attempt=3, scoring_s=1.0)
    theirs = replace(theirs, budgets=(replace(theirs.budgets[0], spent=2.5), theirs.budgets[1]))
    assert differences(ours, theirs) == []
    assert without_clocks(ours).steps[0].generating_s == 0.0


def test_everything_else_counts_and_is_named_by_its_place() -> None:
    ours = example()
    theirs = replace(ours, budgets=(ours.budgets[0], replace(ours.budgets[1], spent=3)), episode_id="other")
    assert differences(ours, theirs) == [
        Difference("episode_id", "e0", "other"),
        Difference("budgets[1].spent", 2, 3),
    ]
    longer = replace(ours, rewards=(*ours.rewards, *ours.rewards))
    assert differences(ours, longer) == [Difference("rewards[1]", None, ours.rewards[0])]
    other_ids = EpisodeBuilder().prompt([1, 2]).turn(reply([4])).end(budgets=ours.budgets)
    assert {"segments[0].token_ids", "steps[0].sampled.completion_ids"} <= {
        difference.path for difference in differences(ours, other_ids)
    }


@given(episode_records())
def test_a_record_does_not_differ_from_itself(record: EpisodeRecord) -> None:
    """Taking the clocks out twice is taking them out once, and no record differs from itself."""
    stopped = without_clocks(record)
    assert without_clocks(stopped) == stopped
    assert differences(record, stopped) == []
