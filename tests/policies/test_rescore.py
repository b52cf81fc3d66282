"""Re-scoring against the stub engine, whose distribution is known exactly.

Promises kept here: the score of a recorded id is the engine's own under the recorded parameters, by prompt log-probs,
by the whole vocabulary renormalised, or position by position; what cannot be asked for is refused with the remedy.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from agentenv.core.deadline import Deadline
from agentenv.errors import ConfigError, OrderError, PolicyServerFault
from agentenv.policies.rescore import Rescorer, rescore
from agentenv.policies.vllm import VllmPolicy
from agentenv.records.axes import Distribution
from agentenv.records.tokens import SamplingParams, unpack_ids, unpack_logprobs
from agentenv.rendering.byte_tokenizer import ByteTokenizer
from agentenv.testing.contracts.policy import plain_request
from agentenv.testing.stub_engine import StubEngine, StubOptions

PROMPT = ByteTokenizer().encode("What is 2 + 2? ")
WHOLE = StubOptions(max_logprobs=ByteTokenizer().vocab_size)


@pytest.mark.parametrize(
    "options", [WHOLE, StubOptions(), replace(WHOLE, generate=None)], ids=["all", "20", "no-route"]
)
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(max_tokens=20),
        SamplingParams(max_tokens=20, temperature=0.0),
        SamplingParams(max_tokens=20, temperature=0.7),
        SamplingParams(max_tokens=20, temperature=1.5, top_p=0.8, top_k=30),
    ],
    ids=["plain", "greedy", "tempered", "filtered"],
)
async def test_recorded_logprobs_are_confirmed(options: StubOptions, sampling: SamplingParams) -> None:
    async with StubEngine(options) as engine:
        url = await engine.start()
        async with VllmPolicy(url, tokenizer=ByteTokenizer()) as policy:
            await policy.start()
            request = replace(plain_request(PROMPT), sampling=sampling)
            sampled = (await policy.sample(request, Deadline.after(30, "test"))).sampled
        ids = PROMPT.tolist() + list(unpack_ids(sampled.completion_ids))
        positions = list(range(len(PROMPT), len(ids)))[::-1]
        distribution = sampled.logprob_spans[0].distribution
        scores = await rescore(url, None, ids, positions, sampling=sampling, distribution=distribution)
    assert scores[::-1] == pytest.approx(unpack_logprobs(sampled.logprobs), abs=1e-6)


async def test_another_temperature_is_not_confirmed() -> None:
    async with StubEngine(WHOLE) as engine, Rescorer(await engine.start()) as rescorer:
        await rescorer.start()
        ids = PROMPT.tolist()
        plain = await rescorer.rescore(ids, [3, 4, 5], sampling=SamplingParams())
        tempered = await rescorer.rescore(ids, [3, 4, 5], sampling=SamplingParams(temperature=0.7))
        model = await rescorer.rescore(
            ids, [3, 4, 5], sampling=SamplingParams(temperature=0.7), distribution=Distribution.MODEL
        )
    assert plain == model
    assert plain != pytest.approx(tempered, abs=1e-3)


async def test_an_id_that_was_filtered_out_has_no_score() -> None:
    async with StubEngine() as engine, Rescorer(await engine.start()) as rescorer:
        await rescorer.start()
        scores = await rescorer.rescore(PROMPT.tolist(), range(1, len(PROMPT)), sampling=SamplingParams(top_k=1))
    assert None in scores


@pytest.mark.parametrize(
    ("positions", "sampling", "distribution", "says"),
    [
        ([0], SamplingParams(), Distribution.MODEL, "first id has nothing before it"),
        ([99], SamplingParams(), Distribution.MODEL, r"\[1, 15\)"),
        ([1], SamplingParams(), Distribution.UNKNOWN, "unknown distribution"),
        ([1], SamplingParams(temperature=0.0), Distribution.SAMPLING, "greedy"),
        ([1], SamplingParams(presence_penalty=0.1), Distribution.SAMPLING, "presence"),
    ],
)
async def test_what_cannot_be_asked_is_refused(
    positions: list[int], sampling: SamplingParams, distribution: Distribution, says: str
) -> None:
    async with StubEngine() as engine, Rescorer(await engine.start()) as rescorer:
        await rescorer.start()
        with pytest.raises(ConfigError, match=says):
            await rescorer.rescore(PROMPT.tolist(), positions, sampling=sampling, distribution=distribution)


async def test_it_must_be_started_and_answered() -> None:
    async with Rescorer("http://127.0.0.1:1") as rescorer:
        with pytest.raises(OrderError):
            await rescorer.rescore([1, 2], [1], sampling=SamplingParams())
        with pytest.raises(PolicyServerFault, match="Is the server running"):
            await rescorer.start()
