"""The parts of a run's numbers: what each counts, and how it is added up, one record after another.

Law 5: null is never counted as 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentenv.core.training import training_of
from agentenv.metrics.rates import MeanReward, SuccessRate
from agentenv.records.axes import CompactionOutcome, Outcome, Scoring
from agentenv.records.episode import EpisodeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """What one budget was spent to, over the episodes that had it."""

    n: int
    """Episodes with this budget."""
    limit: float
    """Highest limit among them."""
    mean_spent: float
    max_spent: float
    ended: int
    """Episodes that ended because it ran out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens of the attempts that stand."""

    prompt: int
    """Sum over calls of their prompt's length: what the engine was given."""
    cached: int | None
    """Of them, taken from the engine's prefix cache; None if it never said."""
    sampled: int
    trainable: int
    """Sampled tokens with a finite log-prob of the distribution they were sampled from."""
    thrown_away: int
    """Sampled in attempts that another one replaced; only among the attempts that were given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpent:
    """Seconds of the attempts that stand, added up over episodes (which run side by side)."""

    queued_s: float
    generating_s: float
    tool_s: float
    rendering_s: float
    compressing_s: float
    scoring_s: float
    elapsed_s: float
    """From begin to end of each episode."""

    @property
    def rest_s(self) -> float:
        """Elapsed, less everything above: the harness itself, starting sandboxes, waiting for a turn of the loop."""
        parts = (self.queued_s, self.generating_s, self.tool_s, self.rendering_s, self.compressing_s, self.scoring_s)
        return self.elapsed_s - sum(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreachCounts:
    """Constraints broken, and whether the policy could see them when it acted."""

    visible: int
    hidden: int
    hidden_by_compaction: int
    """Of the hidden ones, those a compaction removed."""
    episodes: int
    """Episodes with at least one breach."""
    by_constraint: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionCounts:
    """What compressors did."""

    applied: int
    failed: int
    tokens_before: int
    """Rendered size before, summed over applied ones."""
    tokens_after: int
    episodes: int
    """Episodes with at least one attempt to compact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endings:
    """How episodes ended, on each axis by itself."""

    terminated: int
    truncated: int
    reasons: Mapping[str, int]
    """By stop reason; ``interrupted`` for an attempt that never ended."""
    scorings: Mapping[str, int]
    faults: Mapping[str, int]
    """By whose fault."""
    fault_texts: Mapping[str, int]
    """By class and message, most frequent first."""
    outcomes: Mapping[str, int]
    success: SuccessRate
    reward: MeanReward


@dataclass(slots=True)
class EndingSums:
    """Adds up `Endings`."""

    axes: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    n: Counter[str] = field(default_factory=Counter[str])
    reward: float = 0.0
    fault_texts: Counter[str] = field(default_factory=Counter[str])

    def add(self, record: EpisodeRecord) -> None:
        """Count one episode."""
        if record.fault is not None:
            self.fault_texts[f"{record.fault.error}: {record.fault.message}"] += 1
        self.axes["reason", "interrupted" if record.reason is None else str(record.reason)] += 1
        self.axes["scoring", str(record.scoring)] += 1
        self.axes["fault", str(record.fault_domain)] += 1
        self.axes["outcome", str(record.outcome)] += 1
        scored, success = record.scoring is Scoring.SCORED, record.outcome is Outcome.SUCCESS
        self.n.update(all=1, terminated=int(record.terminated), truncated=int(record.truncated))
        self.n.update(scored=int(scored), success=int(success), scored_success=int(scored and success))
        if record.reward is not None:
            self.n["rewarded"] += 1
            self.reward += record.reward

    def result(self) -> Endings:
        """Give the counts."""
        n = self.n
        return Endings(
            terminated=n["terminated"],
            truncated=n["truncated"],
            reasons=self._axis("reason"),
            scorings=self._axis("scoring"),
            faults=self._axis("fault"),
            fault_texts=dict(self.fault_texts.most_common()),
            outcomes=self._axis("outcome"),
            success=SuccessRate(
                scored_successes=n["scored_success"], successes=n["success"], n_scored=n["scored"], n_all=n["all"]
            ),
            reward=MeanReward(total=self.reward, n_scored=n["rewarded"], n_all=n["all"]),
        )

    def _axis(self, axis: str) -> dict[str, int]:
        return {value: count for (name, value), count in sorted(self.axes.items()) if name == axis}


@dataclass(slots=True)
class BudgetSums:
    """Adds up `BudgetUse`, by name of the budget."""

    spent: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Name to number of episodes, highest limit, sum and maximum of what was spent."""
    ended: Counter[str] = field(default_factory=Counter[str])

    def add(self, record: EpisodeRecord) -> None:
        """Count one episode."""
        if record.budget is not None:
            self.ended[record.budget] += 1
        for state in record.budgets:
            n, limit, total, most = self.spent.get(state.name, (0, 0.0, 0.0, float("-inf")))
            self.spent[state.name] = [
                n + 1, max(limit, state.limit), total + state.spent, max(most, state.spent)
            ]  # fmt: skip

    def result(self) -> dict[str, BudgetUse]:
        """Give the use of every budget."""
        return {
            name: BudgetUse(n=int(n), limit=limit, mean_spent=total / n, max_spent=most, ended=self.ended[name])
            for name, (n, limit, total, most) in sorted(self.spent.items())
        }


@dataclass(slots=True)
class TokenSums:
    """Adds up `TokenCounts`."""

    n: Counter[str] = field(default_factory=Counter[str])
    cached: int | None = None

    def add(self, record: EpisodeRecord) -> None:
        """Count one episode."""
        for step in record.steps:
            self.n.update(prompt=step.prompt_length, sampled=step.completion_length)
            if step.cached_tokens is not None:
                self.cached = (self.cached or 0) + step.cached_tokens
        self.n["trainable"] += sum(segment.n_trained for segment in training_of(record))

    def throw_away(self, record: EpisodeRecord) -> None:
        """Count an attempt that another one replaced."""
        self.n["thrown_away"] += sum(step.completion_length for step in record.steps)

    def result(self) -> TokenCounts:
        """Give the counts."""
        n = self.n
        return TokenCounts(
            prompt=n["prompt"],
            cached=self.cached,
            sampled=n["sampled"],
            trainable=n["trainable"],
            thrown_away=n["thrown_away"],
        )


_OF_STEPS = ("queued_s", "generating_s", "tool_s", "rendering_s", "compressing_s")
_PARTS = (*_OF_STEPS, "scoring_s", "elapsed_s")


@dataclass(slots=True)
class TimeSums:
    """Adds up `TimeSpent`."""

    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys((*_OF_STEPS, "scoring_s", "elapsed_s"), 0.0)
    )

    def add(self, record: EpisodeRecord) -> None:
        """Count one episode."""
        for name in _OF_STEPS:
            self.seconds[name] += sum(getattr(step, name) for step in record.steps)
        self.seconds["compressing_s"] += sum(each.duration_s for each in record.failed_compactions)
        self.seconds["scoring_s"] += record.scoring_s
        so_far = max((step.elapsed_s for step in record.steps), default=0.0)
        self.seconds["elapsed_s"] += record.elapsed_s if record.ended else so_far

    def result(self) -> TimeSpent:
        """Give the seconds."""
        return TimeSpent(**self.seconds)


@dataclass(slots=True)
class CompactionSums:
    """Adds up `CompactionCounts`."""

    n: Counter[str] = field(default_factory=Counter[str])

    def add(self, record: EpisodeRecord) -> None:
        """Count one episode."""
        compactions = [*record.failed_compactions, *(each for step in record.steps for each in step.compactions)]
        for each in compactions:
            if each.outcome is CompactionOutcome.APPLIED and each.tokens_after is not None:
                self.n.update(applied=1, before=each.tokens_before, after=each.tokens_after)
            else:
                self.n["failed"] += 1
        self.n["episodes"] += bool(compactions)

    def result(self) -> CompactionCounts:
        """Give the counts."""
        n = self.n
        return CompactionCounts(
            applied=n["applied"],
            failed=n["failed"],
            tokens_before=n["before"],
            tokens_after=n["after"],
            episodes=n["episodes"],
        )


@dataclass(slots=True)
class BreachSums:
    """Adds up `BreachCounts`."""

    n: Counter[str] = field(default_factory=Counter[str])
    constraints: Counter[str] = field(default_factory=Counter[str])

    def add(self, record: EpisodeRecord) -> None:
        """Count one episode."""
        for breach in record.breaches:
            self.constraints[breach.constraint_id] += 1
            self.n["visible" if breach.visible else "hidden"] += 1
            self.n["by_compaction"] += not breach.visible and breach.compaction_id is not None
        self.n["episodes"] += bool(record.breaches)

    def result(self) -> BreachCounts:
        """Give the counts."""
        return BreachCounts(
            visible=self.n["visible"],
            hidden=self.n["hidden"],
            hidden_by_compaction=self.n["by_compaction"],
            episodes=self.n["episodes"],
            by_constraint=dict(sorted(self.constraints.items())),
        )
