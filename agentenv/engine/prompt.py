"""The first prompt of an episode: the task's messages, with worked examples where the collector wants them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from agentenv.engine.ledger import budget_text
from agentenv.records.budgets import BudgetState
from agentenv.records.constraints import Constraint
from agentenv.records.messages import Message, Role


class Opening(NamedTuple):
    """What an episode starts from."""

    messages: tuple[Message, ...]
    """With ids ``m0``, ``m1``, … in order."""
    constraints: tuple[Constraint, ...]
    """With carriers that name these ids."""


def compose_opening(
    messages: Sequence[Message],
    constraints: Sequence[Constraint],
    demonstrations: Sequence[Sequence[Message]] = (),
    left: Sequence[BudgetState] = (),
) -> Opening:
    """Put worked examples after the leading system messages and number everything anew.

    Examples are pinned to nothing: a compressor may drop them like any turn of old.

    Args:
        messages: The task's own.
        constraints: The task's own.
        demonstrations: Worked examples, each a conversation.
        left: Budgets to show as text, at the end of the task's first user message; empty to show none. Where it has
            no user message they end its system message, else the last one: what the policy answers first.
    """
    messages = _with_budgets(messages, left) if left else messages
    n_system = next((n for n, message in enumerate(messages) if message.role is not Role.SYSTEM), len(messages))
    examples = [_renamed(message, example) for example, chat in enumerate(demonstrations) for message in chat]
    ordered = [*messages[:n_system], *examples, *messages[n_system:]]
    new_ids = {message.id: f"m{n}" for n, message in enumerate(ordered)}
    return Opening(
        messages=tuple(replace(message, id=f"m{n}") for n, message in enumerate(ordered)),
        constraints=tuple(
            replace(rule, carrier=replace(rule.carrier, message_id=new_ids[rule.carrier.message_id]))
            for rule in constraints
        ),
    )


def _with_budgets(messages: Sequence[Message], left: Sequence[BudgetState]) -> list[Message]:
    """Append what may be spent to one message that is not the policy's; the places of rules in it stay as they are."""
    roles = [message.role for message in messages]
    shows = next((roles.index(role) for role in (Role.USER, Role.SYSTEM) if role in roles), len(roles) - 1)
    return [
        replace(message, text=f"{message.text}\n{budget_text(left)}") if n == shows else message
        for n, message in enumerate(messages)
    ]


def _renamed(message: Message, example: int) -> Message:
    """Keep an example's calls and results paired, and apart from every other example's and the episode's own."""
    prefix = f"d{example}"
    return replace(
        message,
        id=f"{prefix}{message.id}",
        calls=tuple(replace(call, id=f"{prefix}{call.id}") for call in message.calls),
        call_id=None if message.call_id is None else f"{prefix}{message.call_id}",
    )
