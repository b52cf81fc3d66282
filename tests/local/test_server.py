"""The local server: a client of vLLM cannot tell it from vLLM by what it promises.

Promises kept here: the contract of policies holds through it, on both routes' shapes; what cannot be served is refused
and never sampled differently; a client that goes away ends its reply; nobody but this machine gets in without a key.
"""

from __future__ import annotations

import asyncio
import re
from array import array
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from agentenv.core.deadline import Deadline
from agentenv.errors import ConfigError, HarnessFault, PolicyServerFault
from agentenv.local.server import serve
from agentenv.policies.llamacpp import LlamaCppPolicy
from agentenv.policies.scripted import ScriptedPolicy
from agentenv.policies.transport import RetryRules
from agentenv.policies.vllm import VllmPolicy
from agentenv.records.axes import Distribution, Evidence
from agentenv.records.tokens import unpack_ids, unpack_logprobs
from agentenv.rendering.byte_tokenizer import ByteTokenizer
from agentenv.rendering.loading import byte_renderer, load_renderer
from agentenv.testing.contracts.policy import PolicyCase, PolicyContract, plain_request
from agentenv.testing.stub_engine import StubEngine, StubOptions

from tests.local.kit import CHATS, post, serving
from tests.local.smollm2 import model_path, tokenizer

BYTES = ByteTokenizer()
PROMPT = BYTES.encode("<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n")
STOP = BYTES.encode("<|im_end|>")[0]
NEVER = Deadline("never")


@dataclass(frozen=True, slots=True)
class Behind:
    """A server with a policy over a stub engine behind it."""

    url: str
    engine: StubEngine


@pytest.fixture
async def behind() -> AsyncGenerator[Behind]:
    def script(prompt: object, seed: int) -> list[int]:
        return [ord("o"), ord("k"), STOP] if seed == 99 else []

    async with StubEngine(StubOptions(script=script, window=256)) as engine:
        url = await engine.start()
        async with VllmPolicy(url, tokenizer=BYTES, retry=RetryRules(attempts=1)) as policy:
            await policy.start()
            async with serving(policy, model="local") as served:
                yield Behind(served, engine)


class TestServedPolicy(PolicyContract):
    @pytest.fixture
    async def case(self, behind: Behind) -> AsyncGenerator[PolicyCase]:
        async def in_flight() -> int:
            return behind.engine.in_flight

        async with VllmPolicy(behind.url, tokenizer=BYTES) as policy:
            await policy.start()
            behind.engine.delays[1000] = 60.0
            yield PolicyCase(
                policy=policy,
                fresh=lambda: VllmPolicy(behind.url, tokenizer=BYTES),
                request=lambda seed: plain_request(PROMPT, seed=seed),
                vocab_size=BYTES.vocab_size,
                slow=plain_request(PROMPT, seed=1000),
                overlong=plain_request(array("i", [65] * 300)),
                stopping=plain_request(PROMPT, seed=99),
                in_flight=in_flight,
            )

    async def test_the_distribution_of_logprobs_is_reported(self, case: PolicyCase) -> None:
        assert case.policy.identity.logprobs is Distribution.SAMPLING
        assert case.policy.identity.logprobs_evidence is Evidence.REPORTED


async def test_both_routes_give_the_same_reply(behind: Behind) -> None:
    params = {"temperature": 1.0, "max_tokens": 6, "seed": 5, "logprobs": 0}
    ids = PROMPT.tolist()
    _, one = await post(
        behind.url, "/inference/v1/generate", {"token_ids": ids, "sampling_params": params, "return_token_ids": True}
    )
    _, other = await post(behind.url, "/v1/completions", {"prompt": ids, "return_token_ids": True, **params})
    first, second = one["choices"][0], other["choices"][0]
    assert first["token_ids"] == second["token_ids"]
    assert one["prompt_token_ids"] == second["prompt_token_ids"] == ids
    assert [entry["token_id"] for entry in first["logprobs"]["content"]] == first["token_ids"]
    assert [entry["logprob"] for entry in first["logprobs"]["content"]] == second["logprobs"]["token_logprobs"]
    assert second["logprobs"]["tokens"] == [f"token_id:{token}" for token in second["token_ids"]]
    assert second["text"] == BYTES.decode(second["token_ids"])
    assert one["usage"]["total_tokens"] == len(ids) + 6


async def test_a_stop_token_that_was_asked_for_is_named_and_the_models_own_is_not(behind: Behind) -> None:
    for stop_ids, named in (([], None), ([STOP], STOP)):
        params = {"max_tokens": 9, "seed": 99, "stop_token_ids": stop_ids}
        _, body = await post(
            behind.url, "/inference/v1/generate", {"token_ids": PROMPT.tolist(), "sampling_params": params}
        )
        choice = body["choices"][0]
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", named)
        assert choice["token_ids"][-1] == STOP
        assert choice["logprobs"] is None


async def test_text_prompts_and_the_tokenizer_routes(behind: Behind) -> None:
    status, body = await post(behind.url, "/v1/completions", {"prompt": "2 + 2", "max_tokens": 2, "seed": 1})
    assert (status, body["usage"]["prompt_tokens"]) == (200, 5)
    _, tokens = await post(behind.url, "/tokenize", {"prompt": "a<|im_end|>b"})
    assert tokens == {"tokens": [97, STOP, 98], "count": 3, "max_model_len": 256}
    assert await post(behind.url, "/detokenize", {"tokens": tokens["tokens"]}) == (200, {"prompt": "a<|im_end|>b"})


async def test_requests_without_a_seed_differ(behind: Behind) -> None:
    body = {"prompt": PROMPT.tolist(), "max_tokens": 8, "return_token_ids": True}
    replies = [(await post(behind.url, "/v1/completions", body))[1]["choices"][0]["token_ids"] for _ in range(3)]
    assert len({tuple(ids) for ids in replies}) == 3


GENERATE = {"token_ids": [1, 2], "sampling_params": {"max_tokens": 2}}


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/inference/v1/generate", {"token_ids": [1]}, "sampling_params is required"),
        ("/inference/v1/generate", {**GENERATE, "token_ids": []}, "at least one token id"),
        ("/inference/v1/generate", {**GENERATE, "token_ids": ["a"]}, "token ids only"),
        ("/inference/v1/generate", {**GENERATE, "token_ids": [2**40]}, "token ids only"),
        ("/inference/v1/generate", {**GENERATE, "token_ids": [1, 5000]}, "5000 is out of vocabulary"),
        ("/inference/v1/generate", {**GENERATE, "token_ids": [1, -1]}, "-1 is out of vocabulary"),
        ("/inference/v1/generate", {**GENERATE, "token_ids": [1] * 256}, "maximum context length is 256 tokens"),
        ("/inference/v1/generate", {**GENERATE, "stream": True}, "stream = True cannot be had"),
        ("/inference/v1/generate", {**GENERATE, "sampling_params": {"max_tokens": 0}}, "max_tokens must be at least 1"),
        ("/inference/v1/generate", {**GENERATE, "sampling_params": {"temperature": "hot"}}, "must be a number"),
        ("/inference/v1/generate", {**GENERATE, "sampling_params": {"seed": True}}, "must be of type int"),
        ("/v1/completions", {"prompt": [1], "n": 2}, "n = 2 cannot be had"),
        ("/v1/completions", {"prompt": [1], "stop": ["x"]}, "stop = .* cannot be had"),
        ("/v1/completions", {"prompt": [1], "prompt_logprobs": 0}, "prompt_logprobs = 0 cannot be had"),
        ("/v1/completions", {"prompt": [[1], [2]]}, "token ids only"),
        ("/v1/completions", {}, "at least one token id"),
        ("/tokenize", {"messages": []}, "must be a text"),
        ("/detokenize", {"tokens": [1.5]}, "list of token ids"),
        ("/v1/completions", b"{", "no JSON"),
        ("/v1/completions", b"\xff\xfe", "no JSON"),
        ("/v1/completions", [1], "must be a JSON object"),
    ],
)
async def test_what_cannot_be_served_is_refused_and_nothing_sampled(
    behind: Behind, path: str, body: Any, said: str
) -> None:
    status, answer = await post(behind.url, path, body)
    assert status == 400
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert re.search(said, answer["error"]["message"])


async def test_neutral_values_of_refused_fields_are_accepted(behind: Behind) -> None:
    body = {"prompt": [65], "max_tokens": 1, "n": 1, "stop": [], "logit_bias": {}, "ignore_eos": False, "min_tokens": 0}
    assert (await post(behind.url, "/v1/completions", body))[0] == 200


async def test_another_model_is_not_found(behind: Behind) -> None:
    status, answer = await post(behind.url, "/v1/completions", {"prompt": [65], "model": "other"})
    assert (status, answer["error"]["type"]) == (404, "NotFoundError")
    with pytest.raises(ConfigError, match="It serves: local"):
        async with VllmPolicy(behind.url, "other", tokenizer=BYTES) as policy:
            await policy.start()


async def test_a_fault_behind_the_server_is_an_error_of_the_server(behind: Behind) -> None:
    await behind.engine.aclose()
    status, answer = await post(behind.url, "/v1/completions", {"prompt": [65], "max_tokens": 1})
    assert (status, answer["error"]["type"]) == (500, "InternalServerError")


async def test_a_key_is_asked_for_everywhere_but_for_health() -> None:
    async with ScriptedPolicy(byte_renderer(), script=lambda view: None) as policy:  # type: ignore[arg-type, return-value]  not asked
        await policy.start()
        async with serving(policy, api_key="s3cret") as url:
            assert (await post(url, "/tokenize", {"prompt": "a"}))[0] == 401
            assert (await post(url, "/tokenize", {"prompt": "a"}, Authorization="Bearer wrong"))[0] == 401
            assert (await post(url, "/tokenize", {"prompt": "a"}, Authorization="Bearer s3cret"))[0] == 200
            async with aiohttp.ClientSession() as session, session.get(f"{url}/health") as reply:
                assert reply.status == 200
            with pytest.raises(PolicyServerFault, match="API key"):
                async with VllmPolicy(url, tokenizer=BYTES, api_key="wrong") as client:
                    await client.start()


async def test_other_machines_get_in_only_with_a_key() -> None:
    async with ScriptedPolicy(byte_renderer()) as policy:
        await policy.start()
        for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
            with pytest.raises(ConfigError, match="API key"):
                await serve(policy, CHATS, host=host, port=0)


async def test_a_port_in_use_is_named() -> None:
    async with ScriptedPolicy(byte_renderer()) as policy:
        await policy.start()
        async with serving(policy) as url:
            with pytest.raises(HarnessFault, match=r"Cannot listen on 127\.0\.0\.1"):
                await serve(policy, CHATS, port=int(url.rsplit(":", 1)[1]))


async def test_stopping_ends_replies_under_way() -> None:
    async with StubEngine(StubOptions()) as engine, VllmPolicy(await engine.start(), tokenizer=BYTES) as policy:
        await policy.start()
        engine.delays[1000] = 60.0
        body = {"prompt": PROMPT.tolist(), "seed": 1000, "max_tokens": 4}
        async with serving(policy) as url:
            call = asyncio.ensure_future(post(url, "/v1/completions", body))
            while engine.in_flight == 0:
                await asyncio.sleep(0)
        with pytest.raises(aiohttp.ClientError):
            await call
        while engine.in_flight:
            await asyncio.sleep(0)


async def test_the_local_model_gives_a_client_of_vllm_what_it_gives_in_process() -> None:
    """Ids and log-probs are the same through the server, and so is what is known of them."""
    local = LlamaCppPolicy(model_path(), tokenizer=tokenizer(), n_ctx=128, n_parallel=1)
    async with local:
        await local.start()
        async with (
            serving(local, load_renderer(model_path())) as url,
            VllmPolicy(url, tokenizer=tokenizer()) as client,
        ):
            found = await client.start()
            request = plain_request(tokenizer().encode("The sky is"), max_tokens=6, seed=4)
            direct, served = await local.sample(request, NEVER), await client.sample(request, NEVER)
    assert (found.logprobs, found.context_window) == (Distribution.MODEL, 128)
    assert unpack_ids(served.sampled.completion_ids) == unpack_ids(direct.sampled.completion_ids)
    assert unpack_logprobs(served.sampled.logprobs) == pytest.approx(unpack_logprobs(direct.sampled.logprobs), abs=1e-3)
    assert served.sampled.version_spans == direct.sampled.version_spans
