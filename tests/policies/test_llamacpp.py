"""The local policy with the real model and the real engine.

Promises kept here: the contract of every policy; every id has a log-prob even inside characters; log-probs are the
model's own whatever the temperature; stop tokens of the request end a reply; the parent's signals, standard error and
temporary folder are left alone.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from array import array
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from agentenv.core.deadline import Deadline
from agentenv.core.policy import SampleRequest
from agentenv.errors import ConfigError, PolicyServerFault
from agentenv.policies.llamacpp import LlamaCppPolicy
from agentenv.policies.llamacpp_engine import LlamaEngine
from agentenv.policies.llamacpp_sampling import Call, second_reading
from agentenv.records.axes import Distribution, Evidence, Finish
from agentenv.records.tokens import unpack_ids, unpack_logprobs
from agentenv.rendering.byte_tokenizer import ByteTokenizer
from agentenv.testing.contracts.policy import PolicyCase, PolicyContract, check_reply, plain_request

from tests.local.smollm2 import model_path, tokenizer

WINDOW = 128
NEVER = Deadline("never")
END = 2
"""``<|im_end|>`` of SmolLM2."""


def engine_of(policy: LlamaCppPolicy) -> LlamaEngine:
    started = policy._started  # the test looks at the engine itself, which nobody else may
    assert started is not None
    return started.engine


def make() -> LlamaCppPolicy:
    return LlamaCppPolicy(model_path(), tokenizer=tokenizer(), n_ctx=WINDOW, n_parallel=4, n_batch=32)


def asking(text: str, *, seed: int = 1, max_tokens: int = 8, temperature: float = 1.0) -> SampleRequest:
    request = plain_request(tokenizer().encode(text), seed=seed, max_tokens=max_tokens)
    return replace(request, sampling=replace(request.sampling, temperature=temperature))


def chat(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def policy() -> AsyncGenerator[LlamaCppPolicy]:
    async with make() as started:
        await started.start()
        yield started


@pytest.mark.asyncio(loop_scope="module")
class TestLlamaCppPolicy(PolicyContract):
    @pytest_asyncio.fixture(loop_scope="module")
    async def case(self, policy: LlamaCppPolicy) -> PolicyCase:
        async def in_flight() -> int:
            await asyncio.sleep(0.005)  # the contract polls; the engine needs the core that polling would take
            return policy.n_in_flight + engine_of(policy).n_busy()

        return PolicyCase(
            policy=policy,
            fresh=make,
            request=lambda seed: asking("Once upon a time", seed=seed),
            vocab_size=tokenizer().vocab_size,
            slow=asking("word " * 60, max_tokens=60),
            in_flight=in_flight,
            overlong=asking("word " * WINDOW),
            stopping=asking(chat("Say hi."), max_tokens=64, temperature=0.0),
        )


@pytest.mark.asyncio(loop_scope="module")
class TestTokenFidelity:
    async def test_the_engine_is_identified(self, policy: LlamaCppPolicy) -> None:
        found = policy.identity
        assert found.logprobs is Distribution.MODEL
        assert found.logprobs_evidence is Evidence.PROBED
        assert found.context_window == WINDOW
        assert found.tokenizer_sha256 == tokenizer().sha256
        assert len(found.details["model_sha256"]) == 64
        assert found.details["n_threads"] == "1"

    async def test_ids_inside_a_character_are_kept_with_their_logprobs(self, policy: LlamaCppPolicy) -> None:
        """Law: nothing that was sampled is missing, and missing log-probs are null, never invented."""
        text = "Repeat: 🦩🫎 中文漢字 ✓. Again: 🦩🫎 中文漢字 ✓. Again: 🦩🫎 中文漢字 ✓. Again:"
        request = asking(text, max_tokens=19, temperature=0.0)
        reply = await policy.sample(request, NEVER)
        ids = check_reply(reply, request, policy=policy, vocab_size=tokenizer().vocab_size)
        assert tokenizer().decode(ids) == " 🦩🫎 中文漢字 ✓. Again:"[: len(tokenizer().decode(ids))]
        assert len(ids) == 19
        logprobs = unpack_logprobs(reply.sampled.logprobs)
        assert all(value is not None and value > -5.0 for value in logprobs)  # greedy: the likeliest token each time
        assert any("second reading" in note for note in reply.sampled.notes)

    async def test_a_second_reading_gives_the_logprob_the_first_gives(self, policy: LlamaCppPolicy) -> None:
        """The way log-probs inside characters are read agrees with the engine's own numbers where it has both."""
        request = asking("The capital of France is", max_tokens=6, temperature=0.0)
        reply = await policy.sample(request, NEVER)
        ids = unpack_ids(reply.sampled.completion_ids).tolist()
        prompt = request.prompt_ids.tolist()
        call = Call(
            prompt=prompt,
            sampling=request.sampling,
            max_tokens=6,
            seed=1,
            slot=0,
            vocab_size=tokenizer().vocab_size,
            read_step=64,
            n_held=0,
            score_with=END,
        )
        for at, value in enumerate(unpack_logprobs(reply.sampled.logprobs)):
            again = await asyncio.to_thread(second_reading, engine_of(policy), call, prompt + ids[:at], ids[at])
            assert again == pytest.approx(value, abs=1e-3)

    async def test_logprobs_do_not_depend_on_the_temperature(self, policy: LlamaCppPolicy) -> None:
        """Law 3: the distribution they describe is the model's own."""
        firsts: dict[int, set[float]] = {}
        for temperature in (0.5, 1.0, 2.0):
            for seed in range(4):
                request = asking("The sky is", seed=seed, max_tokens=1, temperature=temperature)
                reply = await policy.sample(request, NEVER)
                value = unpack_logprobs(reply.sampled.logprobs)[0]
                assert value is not None
                firsts.setdefault(unpack_ids(reply.sampled.completion_ids)[0], set()).add(round(value, 3))
        assert all(max(values) - min(values) <= 0.0015 for values in firsts.values())
        assert any(len(values) >= 1 for values in firsts.values())

    async def test_a_stop_token_of_the_request_ends_the_reply(self, policy: LlamaCppPolicy) -> None:
        request = asking("1, 2, 3, 4, 5,", max_tokens=24, temperature=0.0)
        whole = unpack_ids((await policy.sample(request, NEVER)).sampled.completion_ids)
        stop = whole[5]
        stopping = replace(request, sampling=replace(request.sampling, stop_token_ids=(stop,)))
        reply = await policy.sample(stopping, NEVER)
        first = whole.index(stop)
        assert unpack_ids(reply.sampled.completion_ids) == whole[: first + 1]
        assert (reply.finish, reply.stop_token_id) == (Finish.STOP, stop)

    async def test_the_window_cuts_a_reply(self, policy: LlamaCppPolicy) -> None:
        prompt = (tokenizer().encode("word " * WINDOW))[: WINDOW - 5]
        reply = await policy.sample(plain_request(array("i", prompt), max_tokens=64), NEVER)
        assert reply.finish is Finish.LENGTH
        assert reply.sampled.n == 5

    async def test_an_id_outside_the_vocabulary_is_a_fault(self, policy: LlamaCppPolicy) -> None:
        for wrong in (-1, 49_152, 2**31 - 1):
            with pytest.raises(PolicyServerFault, match="position 1"):
                await policy.sample(plain_request(array("i", [5, wrong])), NEVER)

    async def test_an_empty_prompt_and_no_room_are_usage_errors(self, policy: LlamaCppPolicy) -> None:
        with pytest.raises(ConfigError, match="empty"):
            await policy.sample(plain_request(array("i")), NEVER)
        with pytest.raises(ConfigError, match="max_tokens"):
            await policy.sample(asking("a", max_tokens=0), NEVER)

    async def test_a_repeated_prefix_is_not_read_again(self, policy: LlamaCppPolicy) -> None:
        first = asking("A rather long beginning, repeated later. " * 6, max_tokens=4)
        reply = await policy.sample(first, NEVER)
        longer = first.prompt_ids + unpack_ids(reply.sampled.completion_ids) + tokenizer().encode(" And so on.")
        again = await policy.sample(replace(first, prompt_ids=longer), NEVER)
        assert again.cached_tokens is not None
        assert again.cached_tokens >= len(first.prompt_ids) - 1


async def test_starting_and_closing_leave_nothing_behind(
    capfd: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path = tmp_path_factory.mktemp("llama")  # its path is a socket's, which may have 107 bytes
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    caught = _caught_signals()
    async with make() as policy:
        await policy.start()
        assert list(tmp_path.iterdir()) == []  # nobody but this process can reach the engine
        assert {number: signal.getsignal(number) for number in before} == before
        assert _caught_signals() & _MASK == caught & _MASK
        six = [asking("word " * 60, max_tokens=60, seed=seed) for seed in range(6)]  # two of them wait for a slot
        calls = [asyncio.ensure_future(policy.sample(request, NEVER)) for request in six]
        await asyncio.sleep(0)
    for call in calls:
        with pytest.raises(PolicyServerFault, match="closed"):
            await call
    assert capfd.readouterr().err == ""


_MASK = (1 << signal.SIGINT - 1) | (1 << signal.SIGTERM - 1)


def _caught_signals() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), 16)


async def test_another_tokenizer_is_refused_before_the_first_episode() -> None:
    with pytest.raises(ConfigError, match="first difference is at position 0"):
        await LlamaCppPolicy(model_path(), tokenizer=ByteTokenizer(), n_ctx=256, n_parallel=1).start()


@pytest.mark.slow
async def test_a_window_beyond_the_models_is_refused() -> None:
    with pytest.raises(ConfigError, match="window of 8192"):
        await LlamaCppPolicy(model_path(), tokenizer=tokenizer(), n_ctx=8448, n_parallel=1).start()
