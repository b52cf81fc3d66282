"""The contract of policies, kept by `VllmPolicy` over the stub engine: both routes, both shapes of log-probs.

Promises kept here: what `PolicyContract` says, whatever way in the server offers. The real server passes the same
suite in ``tests/vllm``.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from agentenv.policies.openai import OpenAiPolicy
from agentenv.policies.vllm import VllmPolicy
from agentenv.rendering.byte_tokenizer import ByteTokenizer
from agentenv.rendering.loading import byte_renderer
from agentenv.testing.contracts.policy import PolicyCase, PolicyContract, plain_request
from agentenv.testing.stub_engine import StubEngine, StubOptions

PROMPT = ByteTokenizer().encode("<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n")
STOP = ByteTokenizer().encode("<|im_end|>")[0]
WAYS = {
    "generate": StubOptions(),
    "generate-strings": StubOptions(generate="strings", version="0.28.0", weight_spans=False),
    "completions": StubOptions(generate=None),
}


def _script(prompt: object, seed: int) -> list[int]:
    """Say "ok" and end the turn, where the seed asks for it."""
    return [ord("o"), ord("k"), STOP] if seed == 99 else []


async def _in_flight(engine: StubEngine) -> int:
    return engine.in_flight


class TestVllmPolicy(PolicyContract):
    @pytest.fixture(params=WAYS.values(), ids=WAYS.keys())
    async def case(self, request: pytest.FixtureRequest) -> AsyncGenerator[PolicyCase]:
        async with StubEngine(replace(request.param, script=_script, window=256)) as engine:
            url = await engine.start()
            async with VllmPolicy(url, tokenizer=ByteTokenizer()) as policy:
                await policy.start()
                slow = plain_request(PROMPT, seed=1000)
                engine.delays[1000] = 60.0
                yield PolicyCase(
                    policy=policy,
                    fresh=lambda: VllmPolicy(url, tokenizer=ByteTokenizer()),
                    request=lambda seed: plain_request(PROMPT, seed=seed),
                    vocab_size=ByteTokenizer().vocab_size,
                    slow=slow,
                    overlong=plain_request(array("i", [65] * 300)),
                    stopping=plain_request(PROMPT, seed=99),
                    in_flight=lambda: _in_flight(engine),
                )


class TestOpenAiPolicy(PolicyContract):
    @pytest.fixture
    async def case(self) -> AsyncGenerator[PolicyCase]:
        renderer = byte_renderer()
        async with StubEngine(StubOptions(script=_script)) as engine:
            url = await engine.start()
            async with OpenAiPolicy(url, "stub", renderer=renderer) as policy:
                await policy.start()
                engine.delays[1000] = 60.0
                yield PolicyCase(
                    policy=policy,
                    fresh=lambda: OpenAiPolicy(url, "stub", renderer=renderer),
                    request=lambda seed: plain_request(PROMPT, seed=seed),
                    vocab_size=renderer.tokenizer.vocab_size,
                    slow=plain_request(PROMPT, seed=1000),
                    overlong=plain_request(PROMPT, text="x" * 5000),
                    stopping=plain_request(PROMPT, seed=99),
                    in_flight=lambda: _in_flight(engine),
                )
