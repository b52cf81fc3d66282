"""Budgets in the first message: in the task's own, whatever the collector puts in front of it."""

from __future__ import annotations

import pytest
from agentenv.config.environments import EnvConfig, open_environment
from agentenv.config.run_config import RunConfig, parse_budgets
from agentenv.records.messages import Role
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
