"""Which settings make everything untrainable, and that a user is told so before and not after collecting."""

from __future__ import annotations

import pytest
from agentenv.core.policy import PolicyIdentity
from agentenv.core.training import nothing_trainable, training_of
from agentenv.records.axes import Distribution
from agentenv.records.tokens import SamplingParams
from agentenv.testing.episodes import EpisodeBuilder, reply

SETTINGS = {
    "plain": SamplingParams(),
    "cold": SamplingParams(temperature=0.3),
    "greedy": SamplingParams(temperature=0.0),
    "filtered": SamplingParams(top_p=0.9),
    "penalty": SamplingParams(repetition_penalty=1.1),
}


def identity(distribution: Distribution, **changes: object) -> PolicyIdentity:
    return PolicyIdentity(kind="vllm", model="m", engine="e", logprobs=distribution, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("sampling", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("distribution", list(Distribution))
def test_the_warning_is_there_exactly_where_nothing_gets_trained(
    distribution: Distribution, sampling: SamplingParams
) -> None:
    """What is said before collecting and what is decided of each token afterwards are one rule."""
    builder = EpisodeBuilder().prompt([1]).turn(reply([2, 3], distribution=distribution), sampling=sampling)
    trained = sum(segment.n_trained for segment in training_of(builder.end()))
    assert (nothing_trainable(identity(distribution), sampling) is None) is (trained > 0)


def test_it_says_what_and_what_to_do() -> None:
    said = nothing_trainable(identity(Distribution.MODEL), SamplingParams(temperature=0.3, top_k=5))
    assert said is not None
    assert "temperature 0.3 with a filter or penalty samples from another" in said
    assert "Use --temperature 1 without filters" in said


def test_text_only_policies_say_so_in_a_line() -> None:
    said = nothing_trainable(identity(Distribution.SAMPLING, trainable=False), SamplingParams())
    assert said is not None
    assert said.count("\n") == 0
    assert "does not give token ids and log-probs" in said
