"""`VllmPolicy` against a real vLLM on a CPU, in float32, with processed log-probs.

Promises kept here: the contract of policies on both routes; ids and log-probs are those the engine itself scores
again, within 1e-3 at temperature 1 and 0.7; what a pause, an abort and new weights leave in a reply; refusals and
mismatches as a real server shows them.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Literal, Self

import anyio
import pytest
from agentenv.core.deadline import Deadline
from agentenv.core.policy import Reply, SampleRequest
from agentenv.core.renderer import Tokenizer
from agentenv.errors import ConfigError, PolicyServerFault, PromptTooLong
from agentenv.policies.openai import OpenAiPolicy
from agentenv.policies.refusals import refusal
from agentenv.policies.rescore import Rescorer
from agentenv.policies.vllm import VllmPolicy
from agentenv.records.axes import Distribution, Evidence, Finish
from agentenv.records.messages import ToolSpec
from agentenv.records.tokens import SamplingParams, unpack_ids, unpack_logprobs
from agentenv.rendering.byte_tokenizer import ByteTokenizer
from agentenv.rendering.loading import load_renderer, load_tokenizer
from agentenv.testing.contracts.policy import PolicyCase, PolicyContract, check_reply, plain_request
from anyio import to_thread
from tests.vllm.conftest import MODEL, VOCABULARY, WINDOW, Engine

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

TEXT = "<|im_start|>user\nWhat is 12 * 7?<|im_end|>\n<|im_start|>assistant\n"
TOLERANCE = 1e-3
RouteName = Literal["generate", "completions"]
ROUTES: tuple[RouteName, ...] = ("generate", "completions")


@pytest.fixture(scope="session")
def tokenizer(engine: Engine) -> Tokenizer:
    return load_tokenizer(engine.model_dir)


@pytest.fixture
async def policy(engine: Engine, tokenizer: Tokenizer) -> AsyncGenerator[VllmPolicy]:
    async with VllmPolicy(engine.url, tokenizer=tokenizer) as policy:
        await policy.start()
        yield policy


async def sample(policy: VllmPolicy, request: SampleRequest) -> Reply:
    return await policy.sample(request, Deadline.after(120, "test"))


class TestRealVllm(PolicyContract):
    @pytest.fixture(params=ROUTES)
    async def case(
        self, request: pytest.FixtureRequest, engine: Engine, tokenizer: Tokenizer
    ) -> AsyncGenerator[PolicyCase]:
        prompt = tokenizer.encode(TEXT)
        route: RouteName = request.param
        stopping = plain_request(prompt, seed=4, max_tokens=200)
        stops = tuple(range(0, VOCABULARY, 4))

        def make() -> VllmPolicy:
            return VllmPolicy(engine.url, tokenizer=tokenizer, route=route)

        async with make() as policy:
            await policy.start()
            yield PolicyCase(
                policy=policy,
                fresh=make,
                request=lambda seed: plain_request(prompt, seed=seed),
                vocab_size=VOCABULARY,
                slow=plain_request(prompt, seed=2, max_tokens=1500),
                in_flight=lambda: to_thread.run_sync(engine.in_flight),
                overlong=plain_request(array("i", [40] * (WINDOW + 1))),
                stopping=replace(stopping, sampling=replace(stopping.sampling, stop_token_ids=stops)),
            )


async def test_start_finds_out_what_the_server_is(engine: Engine, policy: VllmPolicy) -> None:
    identity = policy.identity
    assert (identity.kind, identity.model, identity.engine) == ("vllm", MODEL, "vllm 0.32.0")
    assert identity.endpoint == f"{engine.url}/inference/v1/generate"
    assert identity.context_window == WINDOW
    assert (identity.logprobs, identity.logprobs_evidence) == (Distribution.SAMPLING, Evidence.PROBED)
    assert identity.weight_versions
    assert identity.details["logprobs_mode"] == "processed_logprobs"
    assert identity.details["tokenizer_check"].startswith("equal on ")


async def test_a_wrong_name_and_another_tokenizer_are_refused_before_any_episode(
    engine: Engine, tokenizer: Tokenizer
) -> None:
    async with VllmPolicy(engine.url, "tyni", tokenizer=tokenizer) as policy:
        with pytest.raises(ConfigError, match="Did you mean 'tiny'"):
            await policy.start()
    async with VllmPolicy(engine.url, tokenizer=ByteTokenizer()) as policy:
        with pytest.raises(ConfigError, match="first difference is at position"):
            await policy.start()


async def test_both_routes_say_the_same_greedily(engine: Engine, tokenizer: Tokenizer) -> None:
    said: list[list[int]] = []
    for route in ROUTES:
        async with VllmPolicy(engine.url, tokenizer=tokenizer, route=route) as policy:
            await policy.start()
            request = plain_request(tokenizer.encode(TEXT), max_tokens=24)
            reply = await sample(policy, replace(request, sampling=replace(request.sampling, temperature=0.0)))
            assert reply.sampled.logprob_spans[0].distribution is Distribution.MODEL
            said.append(list(unpack_ids(reply.sampled.completion_ids)))
    assert said[0] == said[1]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(max_tokens=24),
        SamplingParams(max_tokens=24, temperature=0.0),
        SamplingParams(max_tokens=24, temperature=0.7),
        SamplingParams(max_tokens=24, temperature=0.7, top_k=50),
        SamplingParams(max_tokens=24, temperature=1.3, top_p=0.9, repetition_penalty=1.2),
    ],
    ids=["plain", "greedy", "tempered", "top-k", "top-p-penalty"],
)
async def test_the_engine_scores_recorded_ids_as_it_did(
    engine: Engine, tokenizer: Tokenizer, route: RouteName, sampling: SamplingParams
) -> None:
    """Laws 1 to 3: the recorded ids, after exactly the recorded prompt, have the recorded log-probs."""
    async with (
        VllmPolicy(engine.url, tokenizer=tokenizer, route=route) as policy,
        Rescorer(engine.url, MODEL) as rescorer,
    ):
        await policy.start()
        await rescorer.start()
        prompt = tokenizer.encode(TEXT)
        for seed in range(3):
            request = replace(plain_request(prompt, seed=seed), sampling=sampling)
            reply = await sample(policy, request)
            check_reply(reply, request, policy=policy, vocab_size=VOCABULARY)
            await check_scores(rescorer, prompt, reply, sampling)


async def check_scores(rescorer: Rescorer, prompt: array[int], reply: Reply, sampling: SamplingParams) -> None:
    ids = prompt.tolist() + list(unpack_ids(reply.sampled.completion_ids))
    recorded = unpack_logprobs(reply.sampled.logprobs)
    assert recorded
    (span,) = reply.sampled.logprob_spans
    scores = await rescorer.rescore(
        ids, range(len(prompt), len(ids)), sampling=sampling, distribution=span.distribution
    )
    for own, score in zip(recorded, scores, strict=True):
        assert own is not None
        assert score is not None
        assert abs(own - score) < TOLERANCE


async def test_two_ways_to_score_a_tempered_reply_agree(engine: Engine, tokenizer: Tokenizer) -> None:
    """The whole vocabulary's prompt log-probs, renormalised, against the engine's own processed ones."""
    ids = tokenizer.encode(TEXT).tolist()
    positions = range(1, len(ids))
    sampling = SamplingParams(temperature=0.7)
    async with Rescorer(engine.url) as rescorer:
        await rescorer.start()
        whole = await rescorer.rescore(ids, positions, sampling=sampling)
        neutral_filter = replace(sampling, top_k=VOCABULARY)
        single = await rescorer.rescore(ids, positions, sampling=neutral_filter)
        plain = await rescorer.rescore(ids, positions, sampling=SamplingParams())
    assert single == pytest.approx(whole, abs=TOLERANCE)
    assert plain != pytest.approx(whole, abs=TOLERANCE)


async def test_the_last_place_of_a_full_window_is_left_unscored(engine: Engine) -> None:
    async with Rescorer(engine.url) as rescorer:
        await rescorer.start()
        ids = [40 + at % 7 for at in range(WINDOW)]
        scores = await rescorer.rescore(ids, [1, WINDOW - 2, WINDOW - 1], sampling=SamplingParams())
        assert [score is None for score in scores] == [False, False, True]


async def test_an_abort_is_resumed_after_the_pause(engine: Engine, policy: VllmPolicy, tokenizer: Tokenizer) -> None:
    """What the engine cut off and what it said afterwards are one reply, scored as one."""
    for seed in SEEDS:
        request = plain_request(tokenizer.encode(TEXT), seed=seed, max_tokens=400)
        async with Interrupted(engine, policy, request) as interrupted:
            await interrupted.control("/pause?mode=abort")
            await interrupted.control("/resume")
        reply = interrupted.reply()
        if reply.sampled.notes:
            break
    check_reply(reply, request, policy=policy, vocab_size=VOCABULARY)
    assert reply.finish is Finish.LENGTH or reply.stop_token_id is not None
    assert len(reply.sampled.notes) == 1
    assert "resumed" in reply.sampled.notes[0]
    async with Rescorer(engine.url) as rescorer:
        await rescorer.start()
        await check_scores(rescorer, request.prompt_ids, reply, request.sampling)


async def test_a_pause_that_keeps_is_only_waiting(engine: Engine, policy: VllmPolicy, tokenizer: Tokenizer) -> None:
    """A relabelled pause leaves two spans in one call, and no note."""
    for seed in SEEDS:
        request = plain_request(tokenizer.encode(TEXT), seed=seed, max_tokens=400)
        try:
            async with Interrupted(engine, policy, request) as interrupted:
                await interrupted.control("/pause?mode=keep")
                await interrupted.control("/update_weight_version", {"new_version": "step-1"})
                await interrupted.control("/resume")
            reply = interrupted.reply()
        finally:
            engine.control("/update_weight_version", {"new_version": "default"})
        if len(reply.sampled.version_spans) > 1:
            break
    check_reply(reply, request, policy=policy, vocab_size=VOCABULARY)
    assert [span.version for span in reply.sampled.version_spans] == ["default", "step-1"]
    assert reply.retries == 0
    assert reply.sampled.notes == ()


async def test_new_weights_in_mid_reply_sample_what_their_span_says(
    engine: Engine, policy: VllmPolicy, tokenizer: Tokenizer
) -> None:
    """Tokens of the second span are scored by the new weights, those of the first are not."""
    request = plain_request(tokenizer.encode(TEXT), seed=2, max_tokens=400)
    engine.control("/init_weight_transfer_engine", {"init_info": {}})
    try:
        async with Interrupted(engine, policy, request) as interrupted:
            await to_thread.run_sync(load_weights, engine, str(engine.other_weights), "seed-1")
        reply = interrupted.reply()
        old, new = reply.sampled.version_spans
        assert (old.version, new.version) == ("default", "seed-1")
        start = len(request.prompt_ids)
        ids = request.prompt_ids.tolist() + list(unpack_ids(reply.sampled.completion_ids))
        async with Rescorer(engine.url) as rescorer:
            await rescorer.start()
            scores = await rescorer.rescore(ids, range(start, len(ids)), sampling=request.sampling)
    finally:
        load_weights(engine, str(engine.model_dir / "model.safetensors"), "default")
    recorded = unpack_logprobs(reply.sampled.logprobs)
    gaps = [abs((a or 0.0) - (b or 0.0)) for a, b in zip(recorded, scores, strict=True)]
    assert max(gaps[new.start :]) < TOLERANCE
    assert sum(gaps[: old.end]) / old.end > 10 * TOLERANCE


def load_weights(engine: Engine, path: str, label: str) -> None:
    engine.control("/pause?mode=keep")
    engine.control("/start_weight_update")
    engine.control("/update_weights", {"update_info": {"path": path}})
    engine.control("/finish_weight_update", {"weight_version": label})
    engine.control("/reset_prefix_cache")
    engine.control("/resume")


SEEDS = range(2, 22)
"""Of calls that are to be interrupted: a tiny model may have said all it has to say before the engine hears of it."""


class Interrupted:
    """A call under way while the engine is told something: entered when it runs, left when it has ended."""

    def __init__(self, engine: Engine, policy: VllmPolicy, request: SampleRequest) -> None:
        self._engine = engine
        self._policy = policy
        self._request = request
        self._replies: list[Reply] = []
        self._tasks = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run)
        while await to_thread.run_sync(self._engine.in_flight) == 0 and not self._replies:
            pass
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._tasks.__aexit__(*raised)  # type: ignore[arg-type]

    async def control(self, path: str, body: dict[str, str] | None = None) -> None:
        await to_thread.run_sync(self._engine.control, path, body)

    def reply(self) -> Reply:
        (reply,) = self._replies
        return reply

    async def _run(self) -> None:
        self._replies.append(await sample(self._policy, self._request))


@pytest.mark.parametrize("length", [WINDOW, WINDOW + 1, 2 * WINDOW])
@pytest.mark.parametrize("route", ROUTES)
def test_every_refusal_of_a_long_prompt_is_told_apart(engine: Engine, route: RouteName, length: int) -> None:
    ids = [40] * length
    status, body = (
        engine.post("/inference/v1/generate", {"token_ids": ids, "sampling_params": {"max_tokens": 4}})
        if route == "generate"
        else engine.post("/v1/completions", {"model": MODEL, "prompt": ids, "max_tokens": 4})
    )
    assert status == 400
    assert isinstance(refusal(engine.url, status, body), PromptTooLong)


def test_another_refusal_is_no_length(engine: Engine) -> None:
    body = {"token_ids": [40], "sampling_params": {"temperature": -1.0, "max_tokens": 4}}
    status, answer = engine.post("/inference/v1/generate", body)
    found = refusal(engine.url, status, answer)
    assert status == 400
    assert isinstance(found, PolicyServerFault)
    assert not isinstance(found, PromptTooLong)


async def test_text_only_replies_come_out_as_turns(engine: Engine) -> None:
    renderer = load_renderer(engine.model_dir)
    tool = ToolSpec(name="add", description="Add.", parameters={"type": "object", "properties": {}})
    async with OpenAiPolicy(engine.url, MODEL, renderer=renderer) as policy:
        identity = await policy.start()
        assert not identity.trainable
        request = replace(plain_request(array("i", [40])), tools=(tool,))
        reply = await policy.sample(request, Deadline.after(60, "test"))
        check_reply(reply, request, policy=policy, vocab_size=VOCABULARY)
        assert reply.sampled.text is not None
        assert renderer.parse(unpack_ids(reply.sampled.completion_ids), 0) is not None
