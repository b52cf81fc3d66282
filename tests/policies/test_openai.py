"""The text-only policy: what it sends, and how a reply becomes ids an environment can read.

Promises kept here: tool calls come out as the renderer writes them, so that parsing gives them back; what cannot be
written that way is noted; nothing carries log-probs.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest
from agentenv.core.deadline import Deadline
from agentenv.core.policy import Reply, SampleRequest
from agentenv.errors import ConfigError, PolicyServerFault
from agentenv.policies.openai import OpenAiPolicy, chat_body
from agentenv.policies.transport import RetryRules
from agentenv.records.axes import Finish
from agentenv.records.messages import Message, Role, ToolCall, ToolSpec
from agentenv.records.tokens import SamplingParams, unpack_ids
from agentenv.rendering.loading import byte_renderer
from agentenv.testing.contracts.policy import plain_request
from agentenv.testing.stub_engine import StubEngine, StubOptions
from agentenv.testing.stub_faults import StubFault

RENDERER = byte_renderer()
ADD = ToolSpec(name="add", description="Add two numbers.", parameters={"type": "object"})


async def reply_to(message: dict[str, Any], *, renderer: Any = RENDERER) -> Reply:
    async with (
        StubEngine(StubOptions(chat=lambda _: message)) as engine,
        OpenAiPolicy(await engine.start(), "stub", renderer=renderer) as policy,
    ):
        await policy.start()
        return await policy.sample(plain_request(array("i", [1])), Deadline.after(30, "test"))


def call(arguments: object) -> dict[str, Any]:
    return {"content": "Adding.", "tool_calls": [{"id": "x", "function": {"name": "add", "arguments": arguments}}]}


@pytest.mark.parametrize("arguments", ['{"a": 1, "b": [2]}', {"a": 1, "b": [2]}])
async def test_a_tool_call_reads_back(arguments: object) -> None:
    reply = await reply_to(call(arguments))
    turn = RENDERER.parse(unpack_ids(reply.sampled.completion_ids), 0)
    assert [(each.name, each.arguments) for each in turn.calls] == [("add", {"a": 1, "b": [2]})]
    assert (turn.text, turn.closed, reply.finish) == ("Adding.", True, Finish.STOP)
    assert reply.sampled.logprobs == b""
    assert reply.sampled.logprob_spans == ()


@pytest.mark.parametrize("arguments", ["{a: 1", "[1]", '"x"'])
async def test_arguments_that_are_no_object_are_passed_on_and_noted(arguments: str) -> None:
    reply = await reply_to(call(arguments))
    (parsed,) = RENDERER.parse(unpack_ids(reply.sampled.completion_ids), 0).calls
    assert parsed.arguments == {"unparsed_arguments": arguments}
    assert "no JSON object" in reply.sampled.notes[0]


@pytest.mark.parametrize("levels", [60, 900, 100_000])
async def test_arguments_nested_too_deeply_are_passed_on_as_text(levels: int) -> None:
    arguments = '{"a": ' * levels + "1" + "}" * levels
    reply = await reply_to(call(arguments))
    assert "moderate depth" in reply.sampled.notes[0]
    assert reply.sampled.n > 0


async def test_calls_that_no_renderer_can_write_are_the_models_mistake() -> None:
    unnamed = {"function": {"name": " ", "arguments": "{}"}}
    reply = await reply_to({"tool_calls": [unnamed] * 300})
    assert reply.sampled.notes[0] == "the reply has 300 calls; only the first 128 were taken"
    assert RENDERER.parse(unpack_ids(reply.sampled.completion_ids), 0).calls[0].name == "unnamed"


async def test_a_call_without_arguments_has_none() -> None:
    (parsed,) = RENDERER.parse(unpack_ids((await reply_to(call(None))).sampled.completion_ids), 0).calls
    assert parsed.arguments == {}


async def test_text_that_spells_a_call_is_written_plainly() -> None:
    text = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'
    reply = await reply_to({"content": text})
    assert reply.sampled.text == text
    assert RENDERER.tokenizer.decode(unpack_ids(reply.sampled.completion_ids)) == text
    assert "written plainly" in reply.sampled.notes[0]


async def test_without_a_renderer_there_is_text_alone() -> None:
    reply = await reply_to({"content": "four"}, renderer=None)
    assert (reply.sampled.text, reply.sampled.n) == ("four", 0)
    with pytest.raises(ConfigError, match="no renderer"):
        await reply_to(call("{}"), renderer=None)


async def test_a_cut_reply_is_not_closed() -> None:
    reply = await reply_to({"content": "four"})
    assert reply.finish is Finish.LENGTH
    assert not RENDERER.parse(unpack_ids(reply.sampled.completion_ids), 0).closed


async def test_failures_are_those_of_the_other_policies() -> None:
    async with StubEngine() as engine:
        url = await engine.start()
        async with OpenAiPolicy(url, "stob") as policy:
            with pytest.raises(ConfigError, match="Did you mean 'stub'"):
                await policy.start()
        async with OpenAiPolicy(url, "stub", retry=RetryRules(attempts=2, base_s=0.0)) as policy:
            await policy.start()
            engine.inject(StubFault.NO_JSON, StubFault.BROKEN_500, StubFault.BROKEN_500)
            for says in ("no chat completion", "500 in 2 attempts"):
                with pytest.raises(PolicyServerFault, match=says):
                    await policy.sample(plain_request(array("i", [1])), Deadline.after(30, "test"))


def test_the_request_carries_the_history_the_tools_and_every_parameter() -> None:
    messages = (
        Message(id="m0", role=Role.SYSTEM, text="Be brief."),
        Message(id="m1", role=Role.USER, text="2+2"),
        Message(id="m2", role=Role.ASSISTANT, text="", calls=(ToolCall(id="t0c0", name="add", arguments={"a": 2}),)),
        Message(id="m3", role=Role.TOOL, text="4", call_id="t0c0", name="add"),
        Message(id="m4", role=Role.TOOL, text="no call was found"),
    )
    request: SampleRequest = replace(plain_request(array("i", [1])), messages=messages, tools=(ADD,))
    body = chat_body("m", request)
    function = {"name": "add", "arguments": '{"a":2}'}
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2+2"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "t0c0", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "t0c0", "content": "4"},
        {"role": "user", "content": "no call was found"},
    ]
    assert body["tools"][0]["function"]["name"] == "add"
    assert body["seed"] == request.seed
    assert "top_k" not in body
    sampling = SamplingParams(top_k=5, min_p=0.1, temperature=0.5)
    body = chat_body("m", replace(request, sampling=sampling))
    assert (body["top_k"], body["min_p"], body["temperature"]) == (5, 0.1, 0.5)
