"""The numbers of a run as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentenv.metrics.rates import MeanReward, SuccessRate
from agentenv.metrics.stats import RunStats


def stats_text(stats: RunStats) -> str:
    """Write the numbers of a run: how episodes ended, what they were worth, where tokens and time went."""
    return "\n".join(_lines(stats))


def _lines(stats: RunStats) -> Iterator[str]:
    yield f"episodes      {stats.episodes} in {stats.groups} groups, {stats.turns} turns, {stats.segments} segments"
    yield f"attempts      {stats.attempts}, {stats.retried} episodes tried again"
    yield f"ended         {_counts(stats.reasons)}"
    yield f"              {stats.terminated} terminated, {stats.truncated} truncated"
    yield f"scoring       {_counts(stats.scorings)}"
    yield f"fault         {_counts(stats.faults)}"
    yield f"outcome       {_counts(stats.outcomes)}"
    yield f"success       {_success(stats.success)}"
    yield f"reward        {_reward(stats.reward)}"
    for name, use in stats.budgets.items():
        yield (
            f"budget        {name}: mean {use.mean_spent:.4g}, max {use.max_spent:.4g} of {use.limit:g}; "
            f"ended {use.ended} of {use.n}"
        )
    yield from _tokens(stats)
    yield from _time(stats)
    breaches, compactions = stats.breaches, stats.compactions
    yield (
        f"breaches      {breaches.visible} of a visible rule, {breaches.hidden} of a hidden one "
        f"({breaches.hidden_by_compaction} hidden by a compaction), in {breaches.episodes} episodes"
    )
    yield (
        f"compactions   {compactions.applied} applied ({compactions.tokens_before} to {compactions.tokens_after} "
        f"tokens), {compactions.failed} failed, in {compactions.episodes} episodes"
    )


def _tokens(stats: RunStats) -> Iterator[str]:
    tokens = stats.tokens
    cached = "unknown" if tokens.cached is None else str(tokens.cached)
    yield (
        f"tokens        {tokens.sampled} sampled, {tokens.trainable} trainable, {tokens.prompt} in prompts "
        f"(cached: {cached}), {tokens.thrown_away} in attempts thrown away"
    )
    yield (
        f"rate          {_rate(stats.sampled_per_s)} sampled and {_rate(stats.trainable_per_s)} trainable tokens per "
        f"second of the run; {_rate(stats.sampled_per_generating_s)} sampled per second of generating"
    )
    if stats.cost_usd:
        yield f"cost          {stats.cost_usd:.4f} US dollars"


def _time(stats: RunStats) -> Iterator[str]:
    time = stats.time
    wall = "unknown" if stats.wall_clock_s is None else f"{stats.wall_clock_s:.1f} s"
    yield f"time          {wall} of wall-clock; {time.elapsed_s:.1f} s of episodes side by side, of which"
    yield (
        f"              generating {time.generating_s:.1f}, queued {time.queued_s:.1f}, tools {time.tool_s:.1f}, "
        f"rendering {time.rendering_s:.2f}, compressing {time.compressing_s:.2f}, scoring {time.scoring_s:.2f}, "
        f"rest {time.rest_s:.1f}"
    )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"


def _success(rate: SuccessRate) -> str:
    def share(value: float | None, interval: tuple[float, float] | None) -> str:
        if value is None or interval is None:
            return "none"
        return f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"

    return (
        f"{share(rate.of_scored, rate.interval_of_scored)} of {rate.n_scored} scored, "
        f"{share(rate.of_all, rate.interval_of_all)} of all {rate.n_all}; {rate.left_out} left out (95 % Wilson)"
    )


def _reward(reward: MeanReward) -> str:
    def mean(value: float | None) -> str:
        return "none" if value is None else f"{value:.4g}"

    return (
        f"mean {mean(reward.of_scored)} of {reward.n_scored} scored, {mean(reward.of_all)} over all {reward.n_all}; "
        f"{reward.n_all - reward.n_scored} left out"
    )


def _rate(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}"
