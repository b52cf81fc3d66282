"""Chats with the local server: the model's own template in, its calls read back, and nothing made up.

Promises kept here: our own text-only policy drives an episode against it; the prompt is what the renderer writes, and
tokens are counted as they were read and sampled; what was sampled and is no call is given as it was written; what
cannot be had is refused.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from agentenv import RunConfig, open_run, stored_run
from agentenv.config.run_config import PolicyConfig
from agentenv.policies.transport import RetryRules
from agentenv.policies.vllm import VllmPolicy
from agentenv.records.messages import Message, Role, ToolCall, ToolSpec
from agentenv.testing.stub_engine import StubEngine, StubOptions

from tests.local.kit import CHATS, post, serving

PATH = "/v1/chat/completions"
ASKED = {"role": "user", "content": "What is 2 + 2?"}
ADD = {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}}}
NO_JSON = {"id": "x", "type": "function", "function": {"name": "add", "arguments": "["}}
CALLED = {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}


def replying(prompt: object, seed: int) -> list[int]:
    """Call the calculator first, then answer with what it said; by seed, what is no call."""
    if seed == 13:
        return [*CHATS.tokenizer.encode('<tool_call>\n{"name": oops\n</tool_call>'), *CHATS.stop_token_ids[:1]]
    if "1078" in CHATS.tokenizer.decode(prompt):  # type: ignore[arg-type]  a list of ids
        return CHATS.compose("The answer is 1078.", []).tolist()
    call = ToolCall(id="c", name="calculator", arguments={"expression": "22 * 49"})
    return CHATS.compose("", [call]).tolist()


@pytest.fixture
async def url() -> AsyncGenerator[str]:
    async with (
        StubEngine(StubOptions(script=replying, window=1 << 16)) as engine,
        VllmPolicy(await engine.start(), tokenizer=CHATS.tokenizer, retry=RetryRules(attempts=1)) as policy,
    ):
        await policy.start()
        async with serving(policy, model="local") as served:
            yield served


async def chat(url: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    return await post(url, PATH, {"messages": [ASKED], "seed": 1, "max_tokens": 400, **fields})


async def test_the_openai_policy_drives_an_episode(url: str, tmp_path: Path) -> None:
    """Calls, results and the last answer go through text alone, and the record says that it is not trainable."""
    config = RunConfig(suite="arithmetic", policy=PolicyConfig(kind="openai", url=url, model="local"), tasks=1)
    async with open_run(config, tmp_path / "run") as run:
        assert not run.identity.trainable
        await run.collect()
    with stored_run(tmp_path / "run") as stored:
        (record,) = stored.records()
        assert stored.audit().findings == []
    assert [step.results[0].text for step in record.steps if step.results] == ["1078"]
    assert (record.reward, len(record.steps)) == (1.0, 2)


async def test_a_call_is_given_as_one_and_tokens_are_counted(url: str) -> None:
    status, answer = await chat(url, tools=[ADD])
    assert status == 200
    (choice,) = answer["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (
        "calculator",
        {"expression": "22 * 49"},
    )
    spec = ToolSpec(name="add", description="Add.", parameters={"type": "object"})
    prompt = CHATS.open([Message(id="m0", role=Role.USER, text="What is 2 + 2?")], [spec])
    sampled = array("i", replying(prompt, 1))
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(prompt), len(sampled))
    assert usage["total_tokens"] == len(prompt) + len(sampled)


async def test_a_whole_history_is_rendered_as_the_template_does(url: str) -> None:
    said = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "2 + 2?"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALLED]},
        {"role": "tool", "tool_call_id": "x", "content": "4"},
    ]
    rendered = CHATS.open(
        [
            Message(id="m0", role=Role.SYSTEM, text="Be brief."),
            Message(id="m1", role=Role.USER, text="What is 2 + 2?"),
            Message(id="m2", role=Role.ASSISTANT, text="", calls=(ToolCall(id="x", name="add", arguments={"a": 2}),)),
            Message(id="m3", role=Role.TOOL, text="4", call_id="x", name="add"),
        ],
        [],
    )
    _, answer = await chat(url, messages=said)
    assert answer["usage"]["prompt_tokens"] == len(rendered)


async def test_what_is_no_call_is_given_as_it_was_written(url: str) -> None:
    _, answer = await chat(url, seed=13)
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": '<tool_call>\n{"name": oops\n</tool_call>'}
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"messages": []}, "one message at least"),
        ({"messages": "hi"}, "cannot be read"),
        ({"messages": [{"role": "king", "content": "x"}]}, "must be one of"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "text": "x"}]}]}, "no text"),
        ({"messages": [{"role": "assistant", "tool_calls": [NO_JSON]}]}, "cannot be read"),
        ({"stream": True}, "stream = True cannot be had"),
        ({"n": 2}, "n = 2 cannot be had"),
        ({"logprobs": True}, "logprobs = True cannot be had"),
        ({"tool_choice": "required"}, "the model chooses"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"max_tokens": 0}, "at least 1"),
        ({"model": "another"}, "does not exist"),
    ],
)  # fmt: skip
async def test_what_cannot_be_had_is_refused(url: str, fields: dict[str, Any], says: str) -> None:
    status, answer = await chat(url, **fields)
    assert status in (400, 404)
    assert says in answer["error"]["message"]
