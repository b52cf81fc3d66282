"""What `VllmPolicy` does when the engine gives way, lies, or is not what it was taken for.

Promises kept here: token fidelity is checked on every reply, missing log-probs become null with a note, an aborted
reply is resumed, retries are bounded and within the deadline, both refusals of a long prompt are told apart from
others, and a server that cannot work is refused before the first episode with a message that says what to do.
"""

from __future__ import annotations

import socket
from array import array
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.policy import Reply, SampleRequest
from agentenv.errors import ConfigError, PolicyServerFault, PromptTooLong
from agentenv.policies.transport import HttpTransport, RetryRules
from agentenv.policies.vllm import VllmPolicy
from agentenv.records.axes import Distribution, Evidence, Finish
from agentenv.records.tokens import SamplingParams, unpack_ids, unpack_logprobs
from agentenv.rendering.byte_tokenizer import ByteTokenizer
from agentenv.testing.contracts.policy import plain_request
from agentenv.testing.stub_engine import StubEngine, StubOptions
from agentenv.testing.stub_faults import StubFault
from agentenv.testing.stub_model import Law
from aiohttp import web

PROMPT = ByteTokenizer().encode("What is 2 + 2? ")
QUICK = RetryRules(attempts=3, patience_s=60.0, base_s=0.0)
Setup = tuple[StubEngine, VllmPolicy]


@asynccontextmanager
async def serving(
    options: StubOptions | None = None, *, retry: RetryRules = QUICK, **settings: object
) -> AsyncGenerator[Setup]:
    async with StubEngine(options) as engine:
        url = await engine.start()
        async with VllmPolicy(url, tokenizer=ByteTokenizer(), retry=retry, **settings) as policy:  # type: ignore[arg-type]
            await policy.start()
            engine.served = 0
            engine.seeds.clear()
            yield engine, policy


async def sample(policy: VllmPolicy, request: SampleRequest | None = None, within_s: float = 30.0) -> Reply:
    return await policy.sample(request or plain_request(PROMPT), Deadline.after(within_s, "test"))


@pytest.mark.parametrize("generate", ["ids", "strings", None])
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (StubFault.FEW_LOGPROBS, "8 ids and gave 7 log-probs"),
        (StubFault.NO_LOGPROBS, "8 ids and gave 0 log-probs"),
        (StubFault.POSITIVE_LOGPROB, "log-prob 0.5 at position 0"),
        (StubFault.OTHER_LOGPROB, "position 0 is of another token"),
        (StubFault.OTHER_PROMPT, "15 ids sent, 14 used"),
        (StubFault.FOREIGN_ID, r"\[259\] outside the vocabulary of 259"),
        (StubFault.TOO_MANY_TOKENS, "16 tokens where at most 8"),
        (StubFault.ODD_FINISH, "ended a reply with 'error'"),
        (StubFault.NO_JSON, "is not what vLLM gives"),
    ],
)
async def test_an_answer_that_breaks_token_fidelity_is_a_fault(
    generate: str | None, fault: StubFault, says: str
) -> None:
    async with serving(StubOptions(generate=generate)) as (engine, policy):  # type: ignore[arg-type]
        engine.inject(fault)
        with pytest.raises(PolicyServerFault, match=says):
            await sample(policy)
        assert (await sample(policy)).sampled.n == 8


@pytest.mark.parametrize("generate", ["ids", "strings", None])
@pytest.mark.parametrize("fault", [StubFault.NAN_LOGPROB, StubFault.NULL_LOGPROB, StubFault.MISSING_LOGPROB])
async def test_a_missing_logprob_is_null_with_a_note(generate: str | None, fault: StubFault) -> None:
    """Law 2: missing is null, never 0.0."""
    async with serving(StubOptions(generate=generate)) as (engine, policy):  # type: ignore[arg-type]
        engine.inject(fault)
        sampled = (await sample(policy)).sampled
        values = unpack_logprobs(sampled.logprobs)
        assert values[0] is None
        assert None not in values[1:]
        assert sampled.notes == ("1 of 8 log-probs were missing, NaN or -inf in the engine's answer: null",)


async def test_a_logprob_above_zero_by_rounding_is_zero_with_a_note() -> None:
    async with serving() as (engine, policy):
        engine.inject(StubFault.TINY_POSITIVE_LOGPROB)
        sampled = (await sample(policy)).sampled
        assert unpack_logprobs(sampled.logprobs)[0] == 0.0
        assert "set to 0" in sampled.notes[0]


async def test_weight_spans_that_do_not_tile_are_unknown_with_a_note() -> None:
    async with serving() as (engine, policy):
        engine.inject(StubFault.GAPPED_SPANS)
        sampled = (await sample(policy)).sampled
        assert [(span.start, span.end, span.version) for span in sampled.version_spans] == [(0, 8, None)]
        assert "do not cover its 8 tokens" in sampled.notes[0]


async def test_weight_spans_are_kept_as_given_and_none_is_made_up() -> None:
    async with serving() as (_, policy):
        assert policy.identity.weight_versions
        assert [span.version for span in (await sample(policy)).sampled.version_spans] == ["default"]
    async with serving(StubOptions(weight_spans=False)) as (_, policy):
        assert not policy.identity.weight_versions
        assert [span.version for span in (await sample(policy)).sampled.version_spans] == [None]


async def test_an_aborted_reply_is_resumed_and_joined() -> None:
    """The ids of the joined reply are what a model says that is asked again after prompt and partial ids."""
    async with serving() as (engine, policy):
        engine.inject(StubFault.ABORT, StubFault.ABORT)
        request = plain_request(PROMPT, max_tokens=8)
        reply = await sample(policy, request)
        ids = list(unpack_ids(reply.sampled.completion_ids))
        assert (len(ids), reply.finish, reply.retries) == (8, Finish.LENGTH, 2)
        assert len(unpack_logprobs(reply.sampled.logprobs)) == 8
        assert [(span.start, span.end) for span in reply.sampled.version_spans] == [(0, 8)]
        assert len(set(engine.seeds)) == 3
        first, second = PROMPT.tolist() + ids[:4], PROMPT.tolist() + ids[:6]
        table = engine.model.table(Law(1.0))
        for prompt, token in ((first, ids[4]), (second, ids[6])):
            expected = engine.model.logprob(table, token, prompt[-1], len(prompt))
            given = unpack_logprobs(reply.sampled.logprobs)[len(prompt) - len(PROMPT)]
            assert given == pytest.approx(expected, abs=1e-6)
        assert [note.split(",")[0] for note in reply.sampled.notes] == [
            "aborted by the engine at 4 tokens",
            "aborted by the engine at 6 tokens",
        ]


async def test_weights_that_change_at_an_abort_give_two_spans() -> None:
    async with serving() as (engine, policy):
        original = engine.model.draw

        def relabel(*arguments: object, **named: object) -> object:
            drawn = original(*arguments, **named)  # type: ignore[arg-type]
            engine.weight_label = f"step-{engine.served}"
            return drawn

        engine.model.draw = relabel  # type: ignore[method-assign,assignment]
        engine.inject(StubFault.ABORT)
        spans = (await sample(policy)).sampled.version_spans
        assert [(span.start, span.end, span.version) for span in spans] == [(0, 4, "step-1"), (4, 8, "step-2")]


async def test_an_engine_that_aborts_without_end_is_a_fault() -> None:
    async with serving() as (engine, policy):
        engine.inject(*[StubFault.ABORT] * 40)
        with pytest.raises(PolicyServerFault, match="aborted one reply"):
            await sample(policy, plain_request(PROMPT, max_tokens=1))


@pytest.mark.parametrize("fault", [StubFault.BROKEN_500, StubFault.RESET, StubFault.BUSY_429, StubFault.BUSY_503])
async def test_a_passing_failure_is_tried_again(fault: StubFault) -> None:
    async with serving() as (engine, policy):
        engine.inject(fault, fault)
        reply = await sample(policy)
        assert (reply.sampled.n, reply.retries, engine.served) == (8, 2, 3)
        assert len(set(engine.seeds)) == 1


@pytest.mark.parametrize(
    ("fault", "says"), [(StubFault.BROKEN_500, "500 in 3 attempts"), (StubFault.RESET, "attempt 3")]
)
async def test_attempts_are_bounded(fault: StubFault, says: str) -> None:
    async with serving() as (engine, policy):
        engine.inject(*[fault] * 9)
        with pytest.raises(PolicyServerFault, match=says):
            await sample(policy)
        assert engine.served == 3


async def test_patience_with_a_busy_server_is_bounded() -> None:
    async with serving(retry=RetryRules(patience_s=0.0, base_s=0.01)) as (engine, policy):
        engine.inject(*[StubFault.BUSY_503] * 9)
        with pytest.raises(PolicyServerFault, match="was busy"):
            await sample(policy)
        assert engine.served == 1


async def test_retries_end_with_the_deadline() -> None:
    """Law 12: the deadline that fired is named, not the failure that happened to be under way."""
    async with serving(retry=RetryRules(base_s=60.0, cap_s=60.0)) as (engine, policy):
        engine.inject(StubFault.BUSY_503)
        deadline = Deadline.after(0.05, "episode")
        with pytest.raises(DeadlineReached) as caught:
            await policy.sample(plain_request(PROMPT), deadline)
        assert caught.value.deadline is deadline


async def test_a_reply_after_its_deadline_is_dropped() -> None:
    async with serving() as (engine, policy):
        engine.inject(StubFault.HANG)
        with pytest.raises(DeadlineReached):
            await sample(policy, within_s=1.0)
        assert engine.served == 1
        assert (await sample(policy)).sampled.n == 8


async def test_a_paused_server_is_waited_for() -> None:
    async with serving() as (engine, policy):
        engine.pause("keep")
        with pytest.raises(DeadlineReached):
            await sample(policy, within_s=0.05)
        engine.resume()
        assert (await sample(policy)).sampled.n == 8


@pytest.mark.parametrize(
    "fault",
    [
        StubFault.TOO_LONG_GENERATE,
        StubFault.TOO_LONG_GENERATE_FULL,
        StubFault.TOO_LONG_COMPLETIONS,
        StubFault.TOO_LONG_COMPLETIONS_FULL,
    ],
)
async def test_every_shape_of_a_refused_length_is_told_apart(fault: StubFault) -> None:
    async with serving(StubOptions(window=None)) as (engine, policy):
        assert policy.identity.context_window is None
        engine.inject(fault)
        with pytest.raises(PromptTooLong):
            await sample(policy)
        assert engine.served == 1


async def test_another_refusal_is_permanent_and_not_tried_again() -> None:
    async with serving() as (engine, policy):
        engine.inject(StubFault.REFUSED)
        with pytest.raises(PolicyServerFault, match="top_p must be in") as caught:
            await sample(policy)
        assert not isinstance(caught.value, PromptTooLong)
        assert not caught.value.retryable
        assert engine.served == 1


async def test_max_tokens_is_clamped_to_the_window() -> None:
    async with serving(StubOptions(window=100)) as (_, policy):
        reply = await sample(policy, plain_request(array("i", [65] * 97), max_tokens=50))
        assert (reply.sampled.n, reply.finish) == (3, Finish.LENGTH)
    async with serving(StubOptions(window=100), context_window=50) as (_, policy):
        assert policy.identity.context_window == 50
        with pytest.raises(PromptTooLong, match="window of 50"):
            await sample(policy, plain_request(array("i", [65] * 50)))


@pytest.mark.parametrize(
    ("mode", "temperature", "expected"),
    [
        ("processed_logprobs", 1.0, Distribution.SAMPLING),
        ("processed_logprobs", 0.7, Distribution.SAMPLING),
        ("processed_logprobs", 0.0, Distribution.MODEL),
        ("processed_logprobs", 0.005, Distribution.UNKNOWN),
        ("raw_logprobs", 0.7, Distribution.MODEL),
        ("raw_logprobs", 0.0, Distribution.MODEL),
    ],
)
@pytest.mark.parametrize("generate", ["ids", None])
async def test_the_distribution_is_probed_and_said_of_every_reply(
    generate: str | None, mode: str, temperature: float, expected: Distribution
) -> None:
    """Law 3: every log-prob span names its distribution and how that is known."""
    async with serving(StubOptions(generate=generate, logprobs_mode=mode, dev_mode=False)) as (_, policy):  # type: ignore[arg-type]
        assert policy.identity.logprobs_evidence is Evidence.PROBED
        request = plain_request(PROMPT)
        sampling = replace(request.sampling, temperature=temperature)
        (span,) = (await sample(policy, replace(request, sampling=sampling))).sampled.logprob_spans
        assert (span.start, span.end, span.distribution) == (0, 8, expected)
        assert span.evidence is (Evidence.UNKNOWN if expected is Distribution.UNKNOWN else Evidence.PROBED)


@pytest.mark.parametrize(
    ("options", "declared", "expected"),
    [
        (StubOptions(flat=True, dev_mode=False), "auto", (Distribution.UNKNOWN, Evidence.UNKNOWN)),
        (StubOptions(flat=True), "auto", (Distribution.SAMPLING, Evidence.REPORTED)),
        (StubOptions(flat=True, dev_mode=False), "model", (Distribution.MODEL, Evidence.DECLARED)),
        (StubOptions(), "unknown", (Distribution.UNKNOWN, Evidence.DECLARED)),
        (StubOptions(max_logprobs=5), "auto", (Distribution.SAMPLING, Evidence.PROBED)),
        (StubOptions(max_logprobs=0, dev_mode=False), "auto", (Distribution.UNKNOWN, Evidence.UNKNOWN)),
    ],
)
async def test_what_the_probe_cannot_tell_is_reported_declared_or_unknown(
    options: StubOptions, declared: str, expected: tuple[Distribution, Evidence]
) -> None:
    async with serving(options, logprobs=declared) as (_, policy):
        assert (policy.identity.logprobs, policy.identity.logprobs_evidence) == expected


async def test_logits_are_not_taken_for_logprobs() -> None:
    async with serving(StubOptions(logprobs_mode="raw_logits")) as (_, policy):
        assert policy.identity.logprobs is Distribution.UNKNOWN
        with pytest.raises(PolicyServerFault, match="raw_logits"):
            await sample(policy)


async def test_every_request_carries_its_own_seed() -> None:
    async with serving() as (engine, policy):
        for seed in (3, 1, 2):
            await sample(policy, plain_request(PROMPT, seed=seed))
        assert engine.seeds == [3, 1, 2]


async def test_tempered_logprobs_are_those_of_the_tempered_distribution() -> None:
    """The log-prob recorded at temperature 0.7 under top-k 20 is the renormalised one of the sampled id."""
    sampling = SamplingParams(temperature=0.7, top_k=20, max_tokens=8)
    async with serving() as (engine, policy):
        sampled = (await sample(policy, replace(plain_request(PROMPT), sampling=sampling))).sampled
        table = engine.model.table(Law(0.7, 20))
        context = PROMPT.tolist()
        for token, value in zip(unpack_ids(sampled.completion_ids), unpack_logprobs(sampled.logprobs), strict=True):
            assert value == pytest.approx(engine.model.logprob(table, token, context[-1], len(context)), abs=1e-6)
            context.append(token)


async def _refused(error: type[Exception], says: str, options: StubOptions, **settings: object) -> None:
    async with StubEngine(options) as engine:
        url = await engine.start()
        async with VllmPolicy(url, tokenizer=ByteTokenizer(), retry=QUICK, **settings) as policy:  # type: ignore[arg-type]
            with pytest.raises(error, match=says):
                await policy.start()


class _OtherTokenizer(ByteTokenizer):
    """Bytes, one id further on from digits upwards."""

    def encode(self, text: str) -> array[int]:
        return array("i", [(i + 1) % 256 if 48 <= i < 58 else i for i in super().encode(text)])


async def test_a_wrong_model_name_is_refused_with_what_is_served() -> None:
    await _refused(ConfigError, r"Did you mean 'stub'\? It serves: stub", StubOptions(), model="stob")


async def test_another_tokenizer_is_refused_with_the_first_difference() -> None:
    await _refused(ConfigError, r"at position 16: ours \[48.*theirs \[49", StubOptions(tokenizer=_OtherTokenizer()))


async def test_a_server_without_token_routes_is_refused_with_the_flag() -> None:
    await _refused(ConfigError, "--enable-scale-out", StubOptions(generate=None, completions=False))


async def test_a_window_beyond_the_servers_is_refused() -> None:
    await _refused(ConfigError, "serves 4096", StubOptions(), context_window=5000)


async def test_a_declared_distribution_that_is_not_the_servers_is_refused() -> None:
    await _refused(ConfigError, "gives 'model'", StubOptions(logprobs_mode="raw_logprobs"), logprobs="sampling")


async def test_a_server_that_has_no_tokenizer_is_noted() -> None:
    async with serving(StubOptions(tokenize=False)) as (_, policy):
        assert policy.identity.details["tokenizer_check"].startswith("not compared")


async def test_nobody_listening_is_a_fault_with_the_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with VllmPolicy(url, tokenizer=ByteTokenizer()) as policy:
            with pytest.raises(PolicyServerFault, match="Is the server running"):
                await policy.start()


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def _server(handler: Handler) -> AsyncGenerator[str]:
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (200, b"<html>welcome</html>", "is no vLLM server"),
        (404, b'{"detail":"Not Found"}', "is no vLLM server"),
        (200, b'{"version": 3}', "is no vLLM server"),
        (302, b"", "is no vLLM server"),
        (401, b'{"error":"Unauthorized"}', "Give the API key"),
    ],
)
async def test_a_server_that_is_no_vllm_is_said_to_be_none(status: int, body: bytes, says: str) -> None:
    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status, body=body)

    async with _server(handler) as url, VllmPolicy(url, tokenizer=ByteTokenizer(), retry=QUICK) as policy:
        with pytest.raises(PolicyServerFault, match=says) as caught:
            await policy.start()
        assert not caught.value.retryable


async def test_a_server_that_never_answers_ends_the_start() -> None:
    async with StubEngine() as engine:
        url = await engine.start()
        engine.pause("keep")
        async with VllmPolicy(url, tokenizer=ByteTokenizer(), start_timeout_s=0.2) as policy:
            with pytest.raises(PolicyServerFault, match="paused"):
                await policy.start()


@pytest.mark.parametrize("url", ["", "127.0.0.1", "ftp://x", "http://", "unix:/x"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        HttpTransport(url)


@pytest.mark.parametrize("settings", [{"attempts": 0}, {"base_s": -1.0}, {"patience_s": -0.1}])
def test_retry_rules_that_cannot_work_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        RetryRules(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_the_address_may_end_in_v1(suffix: str) -> None:
    async with StubEngine() as engine:
        url = await engine.start()
        async with VllmPolicy(url + suffix, tokenizer=ByteTokenizer()) as policy:
            assert (await policy.start()).endpoint == f"{url}/inference/v1/generate"
