"""The numbers of a run as text for a terminal. Both denominators, always; what is unknown says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentenv.metrics.stats import RunStats


def stats_text(stats: RunStats) -> str:
    """Give the numbers of a run as lines of text."""
    lines = [
        f"episodes     {stats.episodes} in {stats.groups} groups, {stats.attempts} attempts{_again(stats)}",
        f"ended        {_counts(stats.endings.reasons)}",
        f"             {stats.endings.terminated} terminated, {stats.endings.truncated} truncated",
        f"scoring      {_counts(stats.endings.scorings)}",
        f"outcome      {_counts(stats.endings.outcomes)}",
        f"faults       {_counts(stats.endings.faults)}",
        *_commonest_fault(stats),
        *_success(stats),
        *_reward(stats),
        *_budgets(stats),
        *_tokens(stats),
        *_time(stats),
        *_compactions(stats),
        *_breaches(stats),
    ]
    return "\n".join(lines)


def _again(stats: RunStats) -> str:
    return f": {stats.retried} tried again" if stats.retried else ""


def _commonest_fault(stats: RunStats) -> Iterator[str]:
    """Quote the fault that most episodes ended by: mostly one bug of the user's own."""
    texts = stats.endings.fault_texts
    if texts:
        text, count = next(iter(texts.items()))
        others = len(texts) - 1
        yield f"             {count} x {text}" + (f" (and {others} others)" if others else "")


def _counts(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in ordered) or "nothing"


def _success(stats: RunStats) -> Iterator[str]:
    rate = stats.endings.success
    yield (
        f"success      {_share(rate.of_scored, rate.interval_of_scored)} of {rate.n_scored} scored, "
        f"{_share(rate.of_all, rate.interval_of_all)} of all {rate.n_all} ({rate.left_out} not scored)"
    )


def _share(share: float | None, interval: tuple[float, float] | None) -> str:
    if share is None or interval is None:
        return "unknown"
    low, high = interval
    return f"{share:.1%} [{low:.1%}, {high:.1%}]"


def _reward(stats: RunStats) -> Iterator[str]:
    reward = stats.endings.reward
    if reward.of_scored is None or reward.per_episode is None:
        yield f"mean reward  unknown: none of {reward.n_all} episodes has a reward"
        return
    yield (
        f"mean reward  {reward.of_scored:.4g} over {reward.n_scored} with a reward, {reward.per_episode:.4g} spread "
        f"over all {reward.n_all} ({reward.left_out} without)"
    )


def _budgets(stats: RunStats) -> Iterator[str]:
    for name, use in stats.budgets.items():
        yield (
            f"budget       {name}: mean {use.mean_spent:.4g}, most {use.max_spent:.4g} of {use.limit:g}; "
            f"ended {use.ended} of {use.n} episodes"
        )


def _tokens(stats: RunStats) -> Iterator[str]:
    tokens = stats.tokens
    cached = "unknown" if tokens.cached is None else f"{tokens.cached:,}"
    yield (
        f"tokens       {tokens.sampled:,} sampled, {tokens.trainable:,} trainable, {tokens.prompt:,} in prompts "
        f"({cached} cached), {tokens.thrown_away:,} thrown away; {stats.turns} turns, {stats.segments} segments"
    )
    yield (
        f"tokens/s     of wall-clock: {_rate(stats.sampled_per_s)} sampled, {_rate(stats.trainable_per_s)} trainable; "
        f"per episode, while generating: {_rate(stats.sampled_per_generating_s)} sampled, "
        f"{_rate(stats.trainable_per_generating_s)} trainable"
    )
    if stats.cost_usd:
        yield f"cost         ${stats.cost_usd:.4f}"


def _rate(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate:,.1f}"


def _time(stats: RunStats) -> Iterator[str]:
    time = stats.time
    parts = {
        "queued": time.queued_s,
        "generating": time.generating_s,
        "tools": time.tool_s,
        "rendering": time.rendering_s,
        "compressing": time.compressing_s,
        "scoring": time.scoring_s,
        "rest": time.rest_s,
    }
    whole = time.elapsed_s
    shares = ", ".join(f"{name} {_seconds(value, whole)}" for name, value in parts.items())
    yield f"time         {whole:.1f} s of episodes: {shares}"
    wall = stats.wall_clock_s
    yield f"wall-clock   {'unknown' if wall is None else f'{wall:.1f} s'}"


def _seconds(value: float, whole: float) -> str:
    return f"{value:.1f} s ({value / whole:.0%})" if whole else f"{value:.1f} s"


def _compactions(stats: RunStats) -> Iterator[str]:
    counts = stats.compactions
    if counts.applied or counts.failed:
        yield (
            f"compactions  {counts.applied} applied ({counts.tokens_before:,} to {counts.tokens_after:,} tokens), "
            f"{counts.failed} failed, in {counts.episodes} episodes"
        )


def _breaches(stats: RunStats) -> Iterator[str]:
    counts = stats.breaches
    if not counts.episodes:
        yield "breaches     none"
        return
    yield (
        f"breaches     {counts.visible} with the rule visible, {counts.hidden} with it hidden "
        f"({counts.hidden_by_compaction} by a compaction), in {counts.episodes} episodes: "
        f"{_counts(counts.by_constraint)}"
    )
