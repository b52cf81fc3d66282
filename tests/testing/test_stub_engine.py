"""The stub engine is what it says: an exact distribution, and a process that serves it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from agentenv.core.deadline import Deadline
from agentenv.errors import HarnessFault
from agentenv.policies.vllm import VllmPolicy
from agentenv.records.axes import Distribution
from agentenv.records.tokens import unpack_ids
from agentenv.rendering.byte_tokenizer import ByteTokenizer
from agentenv.testing.contracts.policy import plain_request
from agentenv.testing.stub_model import Law, StubModel
from agentenv.testing.stub_process import StubProcess
from hypothesis import given
from hypothesis import strategies as st

LAWS = st.builds(
    Law,
    st.floats(0.3, 2.0),
    st.integers(0, 300),
    st.floats(0.05, 1.0),
    st.floats(0.0, 0.5),
)


@given(LAWS, st.integers(0, 258), st.integers(1, 4000))
def test_probabilities_sum_to_one_over_what_survives(law: Law, previous: int, position: int) -> None:
    """Law: log-probs of all ids at one position are one normalised distribution, whatever filter is on."""
    model = StubModel(259)
    table = model.table(law)
    total = math.fsum(math.exp(model.logprob(table, token, previous, position)) for token in range(259))
    assert total == pytest.approx(1.0)
    best = model.top(table, 5, previous, position)
    assert [model.logprob(table, token, previous, position) for token, _ in best] == [value for _, value in best]
    assert [value for _, value in best] == sorted((value for _, value in best), reverse=True)


def test_filters_keep_what_their_definition_says() -> None:
    model = StubModel(50)
    weights = [(1 + rank) ** -1.2 for rank in range(50)]
    total = sum(weights)
    kept = next(n for n in range(1, 51) if sum(weights[:n]) >= 0.8 * total)
    assert len(model.table(Law(1.0, 0, 0.8)).logprobs) == kept
    assert len(model.table(Law(1.0, 7)).logprobs) == 7
    assert len(model.table(Law(1.0, 0, 1.0, 0.1)).logprobs) == sum(1 for weight in weights if weight >= 0.1)


def test_draws_follow_the_distribution() -> None:
    """20,000 draws at one position: the best id comes up as often as its probability says, within five deviations."""
    model = StubModel(64)
    (best, logprob), *_ = model.top(model.table(Law(1.0)), 1, 5, 1)
    law = Law(1.0)
    drawn = [
        model.draw([5], law=law, scored=law, seed=seed, max_tokens=1, stop_ids=()).ids[0] for seed in range(20_000)
    ]
    expected = math.exp(logprob)
    deviation = math.sqrt(expected * (1 - expected) / len(drawn))
    assert abs(drawn.count(best) / len(drawn) - expected) < 5 * deviation


async def test_it_runs_as_a_process_and_says_what_it_is_given(tmp_path: Path) -> None:
    completions = tmp_path / "completions.json"
    completions.write_text("[[65, 66, 258], [67, 258]]")
    arguments = ("--completions", str(completions), "--logprobs", "raw", "--shape", "strings", "--window", "500")
    async with (
        await StubProcess.start(*arguments) as stub,
        VllmPolicy(stub.url, tokenizer=ByteTokenizer()) as policy,
    ):
        identity = await policy.start()
        assert (identity.logprobs, identity.context_window) == (Distribution.MODEL, 500)
        for seed, expected in ((4, [65, 66, 258]), (5, [67, 258])):
            request = plain_request(ByteTokenizer().encode("x"), seed=seed)
            reply = await policy.sample(request, Deadline.after(30, "test"))
            assert list(unpack_ids(reply.sampled.completion_ids)) == expected
            assert reply.stop_token_id == 258
    await stub.aclose()


async def test_a_process_that_ends_is_a_fault() -> None:
    with pytest.raises(HarnessFault, match="did not start"):
        await StubProcess.start("--window", "none")
