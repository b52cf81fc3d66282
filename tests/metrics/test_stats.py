"""The numbers of a run: both denominators, nothing imputed, nothing kept."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from agentenv.errors import UsageError
from agentenv.metrics.rates import wilson_interval
from agentenv.metrics.stats import RunStats, summarise
from agentenv.metrics.text import stats_text
from agentenv.records.axes import (
    BudgetKind,
    BudgetOwner,
    CompactionOutcome,
    Distribution,
    FaultDomain,
    Outcome,
    Scoring,
    StopReason,
)
from agentenv.records.budgets import BudgetState
from agentenv.records.compaction import Compaction
from agentenv.records.constraints import Breach
from agentenv.records.episode import EpisodeRecord, FaultReport
from agentenv.testing.episodes import EpisodeBuilder, episode_records, reply
from hypothesis import given, settings
from hypothesis import strategies as st


def episode(name: str, *, attempt: int = 1) -> EpisodeBuilder:
    return EpisodeBuilder(episode_id=name, attempt=attempt).prompt([1, 2]).turn(reply([3, 4, 5]), generating_s=0.5)


def budget(spent: float) -> BudgetState:
    return BudgetState(
        name="task.turns", kind=BudgetKind.TURNS, owner=BudgetOwner.TASK, limit=4.0, spent=spent
    )  # fmt: skip


def run() -> list[EpisodeRecord]:
    return [
        episode("a").end(reward=1.0, elapsed_s=2.0, scoring_s=0.25, budgets=(budget(2),)),
        episode("b").end(StopReason.TASK_BUDGET, reward=0.0, elapsed_s=1.0, budget="task.turns", budgets=(budget(4),)),
        episode("c").end(StopReason.FAULT, reward=None, elapsed_s=1.0),
        episode("d").end(StopReason.COLLECTOR_PAUSE, reward=None, elapsed_s=1.0, group_id="g1"),
        episode("e").end(None),
    ]


def test_axes_are_counted_by_themselves() -> None:
    """Law 5: reason, scoring, fault and outcome each have counts of their own."""
    endings = summarise(run()).endings
    assert endings.reasons == {
        "completed": 1, "task_budget": 1, "fault": 1, "collector_pause": 1, "interrupted": 1,
    }  # fmt: skip
    assert (endings.terminated, endings.truncated) == (2, 2)
    assert endings.scorings == {"scored": 2, "not_run": 3}
    assert endings.faults == {"none": 4, "sandbox": 1}
    assert endings.outcomes == {"success": 1, "failure": 1, "unknown": 3}


def test_both_denominators_and_the_number_left_out() -> None:
    """Law 5: aggregates print both denominators (scored, all) and the number left out."""
    endings = summarise(run()).endings
    success, reward = endings.success, endings.reward
    assert (success.of_scored, success.of_all, success.left_out) == (0.5, 0.2, 3)
    assert (success.n_scored, success.n_all) == (2, 5)
    assert (reward.of_scored, reward.per_episode, reward.left_out) == (0.5, 0.2, 3)
    text = stats_text(summarise(run()))
    assert "50.0% [9.5%, 90.5%] of 2 scored, 20.0% [3.6%, 62.4%] of all 5 (3 not scored)" in text
    assert "0.5 over 2 with a reward, 0.2 spread over all 5 (3 without)" in text


def test_success_that_nobody_scored() -> None:
    """A task may know its outcome without a score: in the numerator of all, not of the scored."""
    records = [
        episode("a").end(reward=None, scoring=Scoring.NOT_REQUIRED, outcome=Outcome.SUCCESS),
        episode("b").end(reward=0.0),
    ]
    success = summarise(records).endings.success
    assert (success.of_scored, success.of_all) == (0.0, 0.5)


@settings(max_examples=30)
@given(st.lists(episode_records(), max_size=3, unique_by=lambda record: record.episode_id))
def test_null_is_never_zero(records: list[EpisodeRecord]) -> None:
    """Law 5: no aggregate turns null into 0; what is left out and what is in make up all."""
    stats = summarise(iter(records))
    rewards = [record.reward for record in records if record.reward is not None]
    reward = stats.endings.reward
    assert reward.n_scored == len(rewards)
    assert reward.left_out + reward.n_scored == stats.episodes == len(records)
    if rewards:
        assert reward.of_scored == pytest.approx(math.fsum(rewards) / len(rewards))
    else:
        assert (reward.of_scored, reward.per_episode) == (None, None)
    for axis in (stats.endings.reasons, stats.endings.scorings, stats.endings.faults, stats.endings.outcomes):
        assert sum(axis.values()) == len(records)
    assert stats.tokens.trainable <= stats.tokens.sampled
    assert stats.tokens.sampled == sum(step.completion_length for record in records for step in record.steps)
    assert stats_text(stats)


def test_tokens_and_rates() -> None:
    """Sampled and trainable apart, per second of wall-clock and of generating; unknown is None."""
    unknown = reply([3, 4, 5], distribution=Distribution.UNKNOWN)
    records = [
        episode("a").end(),
        EpisodeBuilder(episode_id="b").prompt([1]).turn(unknown, generating_s=1.0, cached_tokens=0).end(),
    ]
    stats = summarise(records, wall_clock_s=2.0)
    tokens = stats.tokens
    assert (tokens.prompt, tokens.sampled, tokens.trainable, tokens.cached) == (3, 6, 3, 0)
    assert (stats.sampled_per_s, stats.trainable_per_s) == (3.0, 1.5)
    assert (stats.sampled_per_generating_s, stats.trainable_per_generating_s) == (4.0, 2.0)
    blind = summarise([EpisodeBuilder().end(StopReason.CANCELLED, reward=None)])
    assert (blind.sampled_per_s, blind.trainable_per_s, blind.tokens.cached) == (None, None, None)
    assert (blind.sampled_per_generating_s, blind.trainable_per_generating_s) == (None, None)


def test_where_time_went() -> None:
    """Every second of an episode is under one name, the rest included; interrupted ones count up to their last step."""
    failed = Compaction(
        id="k0", compressor="window:9", trigger="budget", budget_tokens=9, edits=(), tokens_before=20,
        tokens_after=None, outcome=CompactionOutcome.FAILED, duration_s=0.5,
    )  # fmt: skip
    builder = EpisodeBuilder(episode_id="a").prompt([1])
    builder.turn(
        reply([2]), queued_s=1.0, generating_s=2.0, tool_s=3.0, rendering_s=0.25, compressing_s=0.5, elapsed_s=7.0
    )
    records = [
        builder.end(elapsed_s=10.0, scoring_s=1.0, failed_compactions=(failed,)),
        EpisodeBuilder(episode_id="b").prompt([1]).turn(reply([2]), elapsed_s=4.0).end(None),
    ]
    time = summarise(records).time
    assert (time.queued_s, time.generating_s, time.tool_s, time.rendering_s) == (1.0, 2.0, 3.0, 0.25)
    assert (time.compressing_s, time.scoring_s, time.elapsed_s) == (1.0, 1.0, 14.0)
    assert time.rest_s == 14.0 - 8.25


def test_budgets() -> None:
    """Spent against the limit, and how many episodes it ended."""
    use = summarise(run()).budgets["task.turns"]
    assert (use.n, use.limit, use.mean_spent, use.max_spent, use.ended) == (2, 4.0, 3.0, 4.0, 1)


def test_compactions_and_breaches() -> None:
    """What compressors did, and whether rules were in sight when they were broken."""
    applied = Compaction(
        id="k0", compressor="window:9", trigger="budget", budget_tokens=9, edits=(), tokens_before=20,
        tokens_after=8, outcome=CompactionOutcome.APPLIED,
    )  # fmt: skip
    failed = Compaction(
        id="k1", compressor="window:9", trigger="budget", budget_tokens=9, edits=(), tokens_before=20,
        tokens_after=None, outcome=CompactionOutcome.FAILED,
    )  # fmt: skip
    builder = EpisodeBuilder(episode_id="a").prompt([1])
    seen = Breach(constraint_id="keep", turn=0, evidence="", visible=True, compaction_id=None)
    lost = Breach(constraint_id="keep", turn=1, evidence="", visible=False, compaction_id="k0")
    never = Breach(constraint_id="quiet", turn=1, evidence="", visible=False, compaction_id=None)
    builder.turn(reply([2]), breaches=(seen,))
    builder.prompt([3], new="compaction k0").turn(reply([4]), compactions=(applied, failed), breaches=(lost, never))
    stats = summarise([builder.end(), episode("b").end()])
    compactions, breaches = stats.compactions, stats.breaches
    assert (compactions.applied, compactions.failed, compactions.episodes) == (1, 1, 1)
    assert (compactions.tokens_before, compactions.tokens_after) == (20, 8)
    assert (breaches.visible, breaches.hidden, breaches.hidden_by_compaction, breaches.episodes) == (1, 2, 1, 1)
    assert breaches.by_constraint == {"keep": 2, "quiet": 1}
    text = stats_text(stats)
    assert "1 with the rule visible, 2 with it hidden (1 by a compaction), in 1 episodes: keep 2, quiet 1" in text
    assert "1 applied (20 to 8 tokens), 1 failed, in 1 episodes" in text


def test_attempts_and_what_was_thrown_away() -> None:
    """An episode counts once, by the attempt that stands; the others are attempts, and their tokens thrown away."""
    records = [
        episode("a").end(StopReason.FAULT, reward=None),
        episode("a", attempt=2).end(None),
        episode("a", attempt=3).end(reward=1.0),
        episode("b").end(reward=0.0),
        episode("c").end(StopReason.FAULT, reward=None),
        episode("c", attempt=2).end(StopReason.CANCELLED, reward=None),
    ]
    stats = summarise(records)
    assert (stats.episodes, stats.attempts, stats.retried, stats.tokens.thrown_away) == (3, 6, 2, 9)
    assert stats.endings.reasons == {"completed": 2, "cancelled": 1}
    standing = summarise([records[2], records[3], records[5]])
    assert (standing.episodes, standing.attempts, standing.retried) == (3, 6, 2)
    with pytest.raises(UsageError, match="follow one another"):
        summarise([records[0], records[3], records[2]])


def test_one_pass_keeps_no_record() -> None:
    """Records are taken one by one: no more than two episodes are alive at any moment."""
    alive: list[int] = []

    class Counted:
        """A list whose items say when they go."""

    import weakref

    held: weakref.WeakSet[Counted] = weakref.WeakSet()

    def records() -> Iterator[EpisodeRecord]:
        for number in range(50):
            token = Counted()
            held.add(token)
            notes: tuple = (token,)
            del token
            yield episode(f"e{number}").end(notes=notes)
            del notes
            alive.append(len(held))

    assert summarise(records()).episodes == 50
    assert max(alive) <= 2


def test_an_empty_run() -> None:
    """No episodes: nothing divides by zero, nothing is 0 that is unknown."""
    stats = summarise([])
    assert isinstance(stats, RunStats)
    assert (stats.episodes, stats.attempts) == (0, 0)
    assert (stats.endings.success.of_scored, stats.endings.success.of_all) == (None, None)
    assert "unknown" in stats_text(stats)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0),
        (1, 1, 0.2065, 1.0),
        (81, 263, 0.2553, 0.3662),
    ],
)
def test_wilson_interval(successes: int, n: int, low: float, high: float) -> None:
    """Against published values (R. G. Newcombe, Statistics in Medicine 17, 1998, method 3, for 81 of 263)."""
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)


def test_wilson_interval_of_nothing() -> None:
    assert wilson_interval(0, 0) is None


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_holds_the_share(case: tuple[int, int]) -> None:
    """The interval lies in [0, 1], around the share, and mirrors it."""
    successes, n = case
    low, high = wilson_interval(successes, n)  # type: ignore[misc]
    assert 0.0 <= low <= successes / n + 1e-12
    assert successes / n - 1e-12 <= high <= 1.0
    mirrored = wilson_interval(n - successes, n)
    assert mirrored == pytest.approx((1 - high, 1 - low))


def test_the_commonest_fault_is_quoted() -> None:
    """Whoever has one bug in a tool reads it under the summary, not in one record of many."""
    bug = FaultReport(domain=FaultDomain.TOOL, error="ToolFault", message="tool 'f' raised KeyError (own.py:7)")
    other = FaultReport(domain=FaultDomain.SANDBOX, error="SandboxFault", message="gone")
    faults = [other, bug, bug]
    records = [
        replace(episode(name).end(StopReason.FAULT, reward=None), fault=fault)
        for name, fault in zip("abc", faults, strict=True)
    ]
    assert "2 x ToolFault: tool 'f' raised KeyError (own.py:7) (and 1 others)" in stats_text(summarise(records))
    assert " x " not in stats_text(summarise([episode("a").end()]))


def test_attempts_say_how_many_episodes_were_tried_again() -> None:
    records = [episode("a").end(StopReason.FAULT, reward=None), episode("a", attempt=2).end(), episode("b").end()]
    assert "2 in 1 groups, 3 attempts: 1 tried again" in stats_text(summarise(records))
    assert "tried again" not in stats_text(summarise(records[2:]))
