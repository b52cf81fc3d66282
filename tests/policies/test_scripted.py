"""Policies that play scripts."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from agentenv.core.deadline import Deadline
from agentenv.core.policy import Policy, SampleRequest
from agentenv.core.task import Script, ScriptView, Task, Turn
from agentenv.errors import ConfigError, OrderError, TaskFault, UnknownNameError
from agentenv.policies.scripted import ScriptedPolicy
from agentenv.records.axes import Distribution, Finish
from agentenv.records.messages import Message, Role
from agentenv.records.tokens import unpack_ids
from agentenv.rendering.loading import byte_renderer
from agentenv.testing.contracts.policy import PolicyCase, PolicyContract, plain_request

RENDERER = byte_renderer()
NEVER = Deadline("never")


def calls_then_answers(view: ScriptView) -> Turn:
    if view.turn == 0:
        return Turn(text="Let me see.", calls=(("calculator", {"expression": f"{view.seed} + 1"}),))
    return Turn(text=f"seen: {view.prompt_text.count('x')} in {len(view.messages)} messages")


def task(**scripts: Script) -> Task:
    return Task(id="t/1", messages=(Message(id="m0", role=Role.USER, text="2 + 2?"),), scripts=scripts)


def asking(*, seed: int = 1, turn: int = 0, max_tokens: int = 512, text: str = "xx") -> SampleRequest:
    return plain_request(RENDERER.tokenizer.encode(text), seed=seed, turn=turn, max_tokens=max_tokens)


class TestScriptedPolicy(PolicyContract):
    @pytest.fixture
    async def case(self) -> PolicyCase:
        policy = ScriptedPolicy(RENDERER, script=calls_then_answers)
        await policy.start()
        return self._case(policy)

    def _case(self, policy: Policy) -> PolicyCase:
        return PolicyCase(
            policy=policy,
            fresh=lambda: ScriptedPolicy(RENDERER, script=calls_then_answers),
            request=lambda seed: asking(seed=seed),
            vocab_size=RENDERER.tokenizer.vocab_size,
            stopping=asking(seed=3),
        )


class TestScriptOfTask(TestScriptedPolicy):
    @pytest.fixture
    async def case(self) -> PolicyCase:
        policy = ScriptedPolicy(RENDERER)
        await policy.start()
        return self._case(policy.for_task(task(reference=calls_then_answers), 0))


async def test_what_a_script_says_is_parsed_back_from_its_ids() -> None:
    """The renderer's inverse: the turn that was composed is the turn that is read."""
    async with ScriptedPolicy(RENDERER, script=calls_then_answers) as policy:
        await policy.start()
        reply = await policy.sample(asking(seed=41), NEVER)
    parsed = RENDERER.parse(unpack_ids(reply.sampled.completion_ids), 0)
    assert parsed.text.strip() == "Let me see."
    assert [(call.id, call.name, call.arguments) for call in parsed.calls] == [
        ("t0c0", "calculator", {"expression": "41 + 1"})
    ]
    assert parsed.closed


async def test_a_script_sees_what_a_policy_would() -> None:
    async with ScriptedPolicy(RENDERER, script=calls_then_answers) as policy:
        await policy.start()
        reply = await policy.sample(asking(turn=1, text="x-x-x"), NEVER)
    assert "seen: 3 in 1 messages" in RENDERER.tokenizer.decode(unpack_ids(reply.sampled.completion_ids))


async def test_no_logprobs_are_invented() -> None:
    """Law 3: unknown is not trainable, and a certain token is not given the log-prob 0.0."""
    async with ScriptedPolicy(RENDERER, script=calls_then_answers) as policy:
        identity = await policy.start()
        reply = await policy.sample(asking(), NEVER)
    assert not identity.trainable
    assert reply.sampled.logprobs == b""
    assert [span.distribution for span in reply.sampled.logprob_spans] == [Distribution.UNKNOWN]


async def test_a_long_turn_is_cut_and_says_so() -> None:
    async with ScriptedPolicy(RENDERER, script=calls_then_answers) as policy:
        await policy.start()
        whole = await policy.sample(asking(), NEVER)
        exact = await policy.sample(asking(max_tokens=whole.sampled.n), NEVER)
        cut = await policy.sample(asking(max_tokens=whole.sampled.n - 1), NEVER)
    assert (exact.finish, exact.sampled) == (Finish.STOP, whole.sampled)
    assert (cut.finish, cut.stop_token_id) == (Finish.LENGTH, None)
    assert cut.sampled.completion_ids == whole.sampled.completion_ids[:-4]


async def test_an_unknown_script_is_named_with_what_is_near() -> None:
    policy = ScriptedPolicy(RENDERER, script="referense")
    await policy.start()
    says = (
        r"^There is no script 'referense' in task t/1 \(--policy scripted:NAME\)\. Did you mean 'reference'\? Known: "
    )
    with pytest.raises(UnknownNameError, match=says + r"nothing, reference\.$"):
        policy.for_task(task(reference=calls_then_answers, nothing=calls_then_answers), 0)


async def test_a_named_script_needs_its_task() -> None:
    policy = ScriptedPolicy(RENDERER)
    await policy.start()
    with pytest.raises(OrderError, match="for_task"):
        await policy.sample(asking(), NEVER)


async def test_a_given_script_plays_every_task() -> None:
    policy = ScriptedPolicy(RENDERER, script=calls_then_answers)
    assert policy.for_task(task(), 0) is policy


async def test_a_script_that_raises_or_says_nothing_is_the_tasks_fault() -> None:
    def raises(view: ScriptView) -> Turn:
        raise KeyError("gone")

    def mute(view: ScriptView) -> Turn:
        return None  # type: ignore[return-value]  what a careless author writes

    for script, said in ((raises, ", in turn 0, raised KeyError"), (mute, " gave a NoneType in turn 0")):
        policy = ScriptedPolicy(RENDERER)
        await policy.start()
        with pytest.raises(TaskFault, match=f"script of task t/1{said}"):
            await policy.for_task(task(reference=script), 0).sample(asking(), NEVER)


async def test_no_room_for_a_reply_is_a_usage_error() -> None:
    policy = ScriptedPolicy(RENDERER, script=calls_then_answers)
    await policy.start()
    request = asking()
    with pytest.raises(ConfigError, match="max_tokens"):
        await policy.sample(replace(request, sampling=replace(request.sampling, max_tokens=0)), NEVER)


async def test_an_empty_prompt_is_played_too() -> None:
    policy = ScriptedPolicy(RENDERER, script=calls_then_answers)
    await policy.start()
    reply = await policy.sample(replace(asking(), prompt_ids=array("i")), NEVER)
    assert reply.sampled.n > 0
