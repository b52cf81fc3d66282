"""Importance ratios, computed only against the distribution that was sampled from."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentenv.errors import UsageError
from agentenv.records.axes import Distribution
from agentenv.records.tokens import SamplingParams


def importance_ratios(
    target: Sequence[float | None],
    behaviour: Sequence[float | None],
    *,
    distribution: Distribution,
    sampling: SamplingParams,
) -> list[float | None]:
    """Give ``exp(target - behaviour)`` for each sampled token.

    Args:
        target: (C,) natural log of the target policy's probability of each token.
        behaviour: (C,) the recorded log-probs.
        distribution: What ``behaviour`` describes.
        sampling: How the tokens were sampled.

    Returns:
        (C,) ratios; None where either number is missing.

    Raises:
        UsageError: The numbers would not be ratios: nobody knows what ``behaviour`` describes; it describes the
            model while a temperature, filter or penalty made another distribution to sample from; or a filter or
            temperature 0 cut the support, which no ratio recovers.
    """
    if len(target) != len(behaviour):
        raise UsageError(f"{len(target)} target log-probs but {len(behaviour)} behaviour log-probs.")
    _refuse(distribution, sampling)
    return [
        None if ours is None or theirs is None else math.exp(ours - theirs)
        for ours, theirs in zip(target, behaviour, strict=True)
    ]


def _refuse(distribution: Distribution, sampling: SamplingParams) -> None:
    if distribution is Distribution.UNKNOWN:
        raise UsageError(
            "Nobody knows which distribution these log-probs describe, so no ratio means anything. Probe the engine "
            "or declare its log-prob mode."
        )
    if distribution is Distribution.MODEL and (sampling.temperature != 1.0 or sampling.filtered):
        raise UsageError(
            f"These log-probs are the model's own, but the tokens were sampled {_how(sampling)}: the ratio would be "
            "against a distribution nobody sampled from, and can be on the wrong side of 1. Collect with processed "
            "log-probs, or at temperature 1 without filters."
        )
    if sampling.top_p < 1.0 or sampling.top_k > 0 or sampling.min_p > 0.0 or sampling.temperature == 0.0:
        raise UsageError(
            f"The tokens were sampled {_how(sampling)}, which gave probability 0 to others: no ratio recovers what "
            "could never be sampled. Collect without filters to correct for the policy's change."
        )


_SHAPING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)


def _how(sampling: SamplingParams) -> str:
    neutral = SamplingParams()
    changed = [name for name in _SHAPING if getattr(sampling, name) != getattr(neutral, name)]
    return "with " + ", ".join(f"{name}={getattr(sampling, name)}" for name in changed)
