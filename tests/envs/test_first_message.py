"""Budgets in the first message: in the task's own, whatever the collector puts in front of it."""

from __future__ import annotations

import pytest
from agentenv.config.environments import EnvConfig, open_environment
from agentenv.config.run_config import RunConfig, parse_budgets
from agentenv.engine.ledger import Ledger, budget_text
from agentenv.engine.prompt import compose_opening
from agentenv.records.messages import Message, Role, ToolCall
from agentenv.registry import load_suite


@pytest.mark.parametrize("shots", [0, 1, 3])
async def test_what_may_be_spent_stands_in_the_tasks_own_first_user_message(shots: int) -> None:
    """And nowhere else: a worked example is another episode, with budgets of its own."""
    run = RunConfig(suite="arithmetic", shots=shots, show_budgets="first_message", budgets=parse_budgets(["turns=5"]))
    async with open_environment(EnvConfig(run=run)) as env:
        await env.reset(seed=3)
        opening = env.record.messages
    task = load_suite("arithmetic").task(3)
    own = next(message.text for message in task.messages if message.role is Role.USER)
    shown = [message for message in opening if "turns" in message.text and message.text not in _texts(shots)]
    assert [message.text.startswith(own + "\n") for message in shown] == [True]
    assert len(opening) == len(task.messages) + sum(map(len, load_suite("arithmetic").demonstrations(shots)))


CALL = Message(id="m1", role=Role.ASSISTANT, text="", calls=(ToolCall(id="c", name="read", arguments={}),))
RESULT = Message(id="m2", role=Role.TOOL, text="a page", call_id="c", name="read")
RULE = Message(id="m0", role=Role.SYSTEM, text="Go on reading.")
LEFT = Ledger(parse_budgets(["turns=5"])).states()


@pytest.mark.parametrize(("messages", "shows"), [((RULE, CALL, RESULT), 0), ((CALL, RESULT), 1)])
def test_a_task_without_a_user_message_says_it_all_the_same(messages: tuple[Message, ...], shows: int) -> None:
    """In its system message, else in the result that the policy answers; never in words of the policy's own."""
    opening = compose_opening(messages, (), left=LEFT).messages
    changed = [n for n, (a, b) in enumerate(zip(messages, opening, strict=True)) if a.text != b.text]
    assert changed == [shows]
    assert opening[shows].text == f"{messages[shows].text}\n{budget_text(LEFT)}"


def _texts(shots: int) -> set[str]:
    """Every text that the suite itself wrote."""
    loaded = load_suite("arithmetic")
    chats = [loaded.task(3).messages, *loaded.demonstrations(shots)]
    return {message.text for chat in chats for message in chat}


async def test_the_same_prompt_without_the_budgets_differs_in_that_message_alone() -> None:
    openings = []
    for show in ("none", "first_message"):
        run = RunConfig(suite="arithmetic", shots=2, show_budgets=show, budgets=parse_budgets(["turns=5"]))
        async with open_environment(EnvConfig(run=run)) as env:
            await env.reset(seed=0)
            openings.append(env.record.messages)
    changed = [n for n, (a, b) in enumerate(zip(*openings, strict=True)) if a != b]
    users = [n for n, message in enumerate(openings[0]) if message.role is Role.USER]
    assert changed == users[-1:]
