"""The worked numbers of the charter, each with what it refuses."""

import math

import pytest
from agentenv.errors import UsageError
from agentenv.metrics.importance import importance_ratios
from agentenv.metrics.pipeline import step_interval
from agentenv.metrics.policy_mean import policy_mean
from agentenv.metrics.td_target import one_step_target
from agentenv.records.axes import Distribution
from agentenv.records.tokens import SamplingParams

MASK = [0] * 6 + [1] * 4 + [0] * 3 + [1] * 5 + [0] * 2
VALUES = [99.0] * 6 + [2.0] * 4 + [99.0] * 3 + [4.0] * 5 + [99.0] * 2


def test_mean_over_policy_tokens() -> None:
    """20 positions, 9 sampled: 28/9, for a loss divides by the policy's tokens."""
    assert len(MASK) == 20
    assert sum(MASK) == 9
    assert policy_mean(VALUES, MASK) == pytest.approx(28 / 9)


@pytest.mark.parametrize(
    ("values", "mask", "says"),
    [
        (VALUES, MASK[:-1], "20 values but 19 mask entries"),
        (VALUES, [*MASK[:-1], 2], "entry 19 is 2"),
        (VALUES, [*MASK[:-1], -1], "entry 19 is -1"),
        (VALUES, [*MASK[:-1], 0.5], "entry 19 is 0.5"),
        (VALUES, [0] * 20, "sampled none of these 20 tokens"),
        ([], [], "none of these 0 tokens"),
    ],
)
def test_means_that_are_refused(values: list[float], mask: list[int], says: str) -> None:
    """A length mismatch, a mask value outside {0, 1} and a mask with no 1 are errors."""
    with pytest.raises(UsageError, match=says):
        policy_mean(values, mask)


def test_one_step_target() -> None:
    """Reward 0.2, next value 0.8, discount 0.9: 0.2 if terminated, 0.92 if truncated by the collector."""
    assert one_step_target(0.2, 0.8, 0.9, terminated=True, truncated=False) == 0.2
    assert one_step_target(0.2, 0.8, 0.9, terminated=False, truncated=True) == pytest.approx(0.92)
    assert one_step_target(0.2, 0.8, 0.9, terminated=False, truncated=False) == pytest.approx(0.92)
    assert one_step_target(0.2, 0.8, 0.9, terminated=True, truncated=True) == 0.2, "terminated wins"
    for gamma in (-0.1, 1.1, math.nan):
        with pytest.raises(UsageError, match="discount"):
            one_step_target(0.2, 0.8, gamma, terminated=True, truncated=False)


def test_step_interval() -> None:
    """Sample 30 s, score 10 s, train 20 s, sync 5 s: 65 s in a row, at least 35 s overlapping."""
    interval = step_interval(sample_s=30, score_s=10, train_s=20, sync_s=5)
    assert interval.serial_s == 65
    assert interval.overlapped_s == 35
    assert interval.ratio == pytest.approx(65 / 35)
    assert interval.ratio == pytest.approx(1.857, abs=5e-4)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_durations_that_are_refused(bad: float) -> None:
    with pytest.raises(UsageError, match="score_s"):
        step_interval(sample_s=30, score_s=bad, train_s=20, sync_s=5)
    with pytest.raises(UsageError, match="no time"):
        step_interval(sample_s=0, score_s=0, train_s=0, sync_s=0)


HOT = SamplingParams(temperature=2.0)
TARGET = [math.log(0.25)]


def test_importance_ratio_against_the_behaviour_distribution() -> None:
    """Raw [0.8, 0.2] at temperature 2 is [2/3, 1/3]; a new policy that gives 0.25 has ratio 0.75."""
    roots = [math.sqrt(0.8), math.sqrt(0.2)]
    behaviour = [math.log(root / sum(roots)) for root in roots]
    assert [math.exp(value) for value in behaviour] == pytest.approx([2 / 3, 1 / 3])
    ratios = importance_ratios(TARGET, behaviour[1:], distribution=Distribution.SAMPLING, sampling=HOT)
    assert ratios == [pytest.approx(0.75)]


def test_importance_ratio_against_the_raw_distribution_is_refused() -> None:
    """1.25 would be wrong, and on the other side of 1: refused, not computed."""
    raw = [math.log(0.2)]
    for sampling in (HOT, SamplingParams(top_p=0.9), SamplingParams(repetition_penalty=1.1)):
        with pytest.raises(UsageError, match="model's own"):
            importance_ratios(TARGET, raw, distribution=Distribution.MODEL, sampling=sampling)
    neutral = importance_ratios(TARGET, raw, distribution=Distribution.MODEL, sampling=SamplingParams())
    assert neutral == [pytest.approx(1.25)], "at temperature 1 the raw distribution is the behaviour distribution"


def test_unknown_distribution_has_no_ratio() -> None:
    with pytest.raises(UsageError, match="Nobody knows"):
        importance_ratios(TARGET, TARGET, distribution=Distribution.UNKNOWN, sampling=SamplingParams())


@pytest.mark.parametrize(
    "sampling",
    [SamplingParams(top_p=0.9), SamplingParams(top_k=5), SamplingParams(min_p=0.1), SamplingParams(temperature=0.0)],
)
def test_cut_support_is_said_instead_of_a_number(sampling: SamplingParams) -> None:
    """No ratio recovers what could never be sampled."""
    with pytest.raises(UsageError, match="never be sampled"):
        importance_ratios(TARGET, TARGET, distribution=Distribution.SAMPLING, sampling=sampling)


def test_missing_log_probs_stay_missing() -> None:
    """Null in, null out: never a ratio of 1 (law 2)."""
    ratios = importance_ratios(
        [None, -1.0, -1.0], [-1.0, None, -1.0], distribution=Distribution.MODEL, sampling=SamplingParams()
    )
    assert ratios == [None, None, 1.0]
    with pytest.raises(UsageError, match="1 target log-probs but 2"):
        importance_ratios([-1.0], [-1.0, -1.0], distribution=Distribution.MODEL, sampling=SamplingParams())
