"""Which fields of a record are readings of a clock, and how two records compare without them.

Two runs of the same thing differ in how long everything took, and a run that was interrupted differs in how often an
episode was attempted. Everything else must be equal where the policy is deterministic (law 11). The list is exact: a
field that is not in it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple, TypeVar, cast

from agentenv.records.axes import BudgetKind
from agentenv.records.budgets import BudgetState
from agentenv.records.compaction import Compaction
from agentenv.records.episode import EpisodeRecord, StepRecord
from agentenv.records.messages import ToolResult

T = TypeVar("T")

CLOCK_FIELDS: Mapping[type[Any], frozenset[str]] = {
    EpisodeRecord: frozenset({"elapsed_s", "scoring_s"}),
    StepRecord: frozenset({"compressing_s", "elapsed_s", "generating_s", "queued_s", "rendering_s", "tool_s"}),
    ToolResult: frozenset({"duration_s"}),
    Compaction: frozenset({"duration_s"}),
}
"""Record type to its fields that say how long something took. ``spent`` of a wall-clock budget is one more."""


class Difference(NamedTuple):
    """One place in which two records differ."""

    path: str
    """Such as ``steps[2].results[0].text``."""
    ours: object
    """None where this record has nothing there."""
    theirs: object


def without_clocks(value: T) -> T:
    """Give a record, or any part of one, with every clock field at zero.

    What the policy was shown is left as it is: budgets in text (``show_budgets``) may hold seconds, and a policy that
    saw other seconds saw another prompt.
    """
    return cast("T", _stopped(value))


def differences(ours: EpisodeRecord, theirs: EpisodeRecord) -> list[Difference]:
    """List where two records of one episode differ, clock fields and the number of the attempt left out."""
    ours, theirs = replace(ours, attempt=0), replace(theirs, attempt=0)
    return list(_compared("", without_clocks(ours), without_clocks(theirs)))


def _stopped(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple([_stopped(item) for item in cast("tuple[Any, ...]", value)])
    if isinstance(value, BudgetState):
        return replace(value, spent=0) if value.kind is BudgetKind.WALL_CLOCK else value
    if not is_dataclass(value) or isinstance(value, type):
        return value
    clocks = CLOCK_FIELDS.get(type(value), frozenset[str]())
    changes = {
        field.name: 0.0 if field.name in clocks else _stopped(getattr(value, field.name)) for field in fields(value)
    }
    return replace(value, **changes)


def _compared(path: str, ours: Any, theirs: Any) -> Iterator[Difference]:
    if ours == theirs:
        return
    if type(ours) is not type(theirs):
        yield Difference(path, ours, theirs)
    elif isinstance(ours, tuple):
        yield from _compared_items(path, cast("Sequence[Any]", ours), theirs)
    elif is_dataclass(ours):
        for field in fields(ours):
            name = f"{path}.{field.name}" if path else field.name
            yield from _compared(name, getattr(ours, field.name), getattr(theirs, field.name))
    else:
        yield Difference(path, ours, theirs)


def _compared_items(path: str, ours: Sequence[Any], theirs: Sequence[Any]) -> Iterator[Difference]:
    for index in range(max(len(ours), len(theirs))):
        mine = ours[index] if index < len(ours) else None
        other = theirs[index] if index < len(theirs) else None
        yield from _compared(f"{path}[{index}]", mine, other)
