"""The numbers of a run, from its records in one pass; no record is kept.

Law 5: null is never counted as 0, and whatever is averaged says over how many, of how many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agentenv.errors import UsageError
from agentenv.metrics.counts import (
    BreachCounts,
    BreachSums,
    BudgetSums,
    BudgetUse,
    CompactionCounts,
    CompactionSums,
    Endings,
    EndingSums,
    TimeSpent,
    TimeSums,
    TokenCounts,
    TokenSums,
)
from agentenv.records.episode import EpisodeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStats:
    """A run in numbers. Episodes are counted by the attempt that stands: the first that is done, else the last."""

    episodes: int
    groups: int
    attempts: int
    """Of all episodes, superseded ones included."""
    retried: int
    """Episodes with more than one attempt."""
    turns: int
    """Replies, summaries included."""
    segments: int
    cost_usd: float
    wall_clock_s: float | None
    """Seconds in which the run was being made; None if nobody measured it."""
    endings: Endings
    budgets: Mapping[str, BudgetUse]
    tokens: TokenCounts
    time: TimeSpent
    compactions: CompactionCounts
    breaches: BreachCounts

    @property
    def sampled_per_s(self) -> float | None:
        """Sampled tokens per second of wall-clock; None if that is unknown or 0."""
        return self.tokens.sampled / self.wall_clock_s if self.wall_clock_s else None

    @property
    def trainable_per_s(self) -> float | None:
        """Trainable tokens per second of wall-clock; None if that is unknown or 0."""
        return self.tokens.trainable / self.wall_clock_s if self.wall_clock_s else None

    @property
    def sampled_per_generating_s(self) -> float | None:
        """Sampled tokens per second of one reply being generated; None if no time was measured."""
        return self.tokens.sampled / self.time.generating_s if self.time.generating_s else None

    @property
    def trainable_per_generating_s(self) -> float | None:
        """Trainable tokens per second of one reply being generated; None if no time was measured."""
        return self.tokens.trainable / self.time.generating_s if self.time.generating_s else None


def summarise(records: Iterable[EpisodeRecord], *, wall_clock_s: float | None = None) -> RunStats:
    """Add up a run.

    Args:
        records: The attempts that stand, or every attempt; attempts of one episode adjacent and in order.
        wall_clock_s: Seconds in which the run was being made (``JournalReader.wall_clock_s``).

    Raises:
        UsageError: The attempts of an episode are not adjacent.
    """
    sums = _Sums()
    for record, replaced in _standing(records):
        sums.add(record, replaced)
    return RunStats(
        episodes=sums.episodes,
        groups=len(sums.groups),
        attempts=sums.attempts,
        retried=sums.retried,
        turns=sums.turns,
        segments=sums.segments,
        cost_usd=sums.cost_usd,
        wall_clock_s=wall_clock_s,
        endings=sums.endings.result(),
        budgets=sums.budgets.result(),
        tokens=sums.tokens.result(),
        time=sums.time.result(),
        compactions=sums.compactions.result(),
        breaches=sums.breaches.result(),
    )


@dataclass(slots=True)
class _Sums:
    episodes: int = 0
    attempts: int = 0
    retried: int = 0
    turns: int = 0
    segments: int = 0
    cost_usd: float = 0.0
    groups: set[str] = field(default_factory=set[str])
    endings: EndingSums = field(default_factory=EndingSums)
    budgets: BudgetSums = field(default_factory=BudgetSums)
    tokens: TokenSums = field(default_factory=TokenSums)
    time: TimeSums = field(default_factory=TimeSums)
    compactions: CompactionSums = field(default_factory=CompactionSums)
    breaches: BreachSums = field(default_factory=BreachSums)

    def add(self, record: EpisodeRecord, replaced: list[EpisodeRecord]) -> None:
        """Count one episode by the attempt that stands; attempts are numbered from 1."""
        attempts = max(record.attempt, *(other.attempt for other in replaced), 1)
        self.episodes += 1
        self.attempts += attempts
        self.retried += attempts > 1
        self.turns += len(record.steps)
        self.segments += len(record.segments)
        self.cost_usd += sum(step.cost_usd for step in record.steps)
        self.groups.add(record.group_id)
        for part in (self.endings, self.budgets, self.tokens, self.time, self.compactions, self.breaches):
            part.add(record)
        for other in replaced:
            self.tokens.throw_away(other)


def _standing(records: Iterable[EpisodeRecord]) -> Iterator[tuple[EpisodeRecord, list[EpisodeRecord]]]:
    """Give for each episode the attempt that stands, with those it replaced."""
    seen: set[str] = set()
    group: list[EpisodeRecord] = []
    for record in records:
        if group and record.episode_id != group[0].episode_id:
            yield _chosen(group)
            group = []
        if not group and record.episode_id in seen:
            raise UsageError(f"Attempts of episode {record.episode_id!r} must follow one another.")
        seen.add(record.episode_id)
        group.append(record)
    if group:
        yield _chosen(group)


def _chosen(group: list[EpisodeRecord]) -> tuple[EpisodeRecord, list[EpisodeRecord]]:
    standing = next((record for record in group if record.done), group[-1])
    return standing, [record for record in group if record is not standing]
