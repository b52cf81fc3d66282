"""How an action ends its episode, where it does: by what it did, or by what it spent. One place, one order. Pure.

First what the task says (a tool that ends it, a breach that does), then a reply that was cut before it could act, then
text taken as the last answer, then the budgets in the order of `engine.ledger.AFTER_STEP`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentenv.engine.ledger import AFTER_STEP, Ledger, reason_for
from agentenv.records.axes import BudgetKind, CallStatus, Finish, StopReason
from agentenv.records.budgets import Budget
from agentenv.records.constraints import Breach, Constraint
from agentenv.records.facts import ActionTaken, EpisodeStarted, TurnSampled
from agentenv.records.messages import TaskEnd, ToolResult

_CUTTING = (BudgetKind.SAMPLED_TOKENS, BudgetKind.CONTEXT_TOKENS)
"""Kinds that cut a reply short."""


class End(NamedTuple):
    """Why an episode ends."""

    reason: StopReason
    budget: Budget | None = None
    """The budget that ran out, where one did."""


def end_of_action(action: ActionTaken, reply: TurnSampled, started: EpisodeStarted, ledger: Ledger) -> End | None:
    """Say how the action that a reply asked for ends the episode; None if it goes on.

    Args:
        action: What came of the reply.
        reply: What asked for it.
        started: What decides the episode.
        ledger: With the action charged.
    """
    ending = task_end(action.results)
    if ending is not None:
        return End(StopReason.COMPLETED if ending.ends is TaskEnd.COMPLETED else StopReason.FAILED)
    if action.breaches and _is_fatal(action.breaches, started.constraints):
        return End(StopReason.CONSTRAINT_BREACH)
    if not reply.parsed.calls:
        if reply.finish is not Finish.STOP:
            return _cut_short(ledger)
        if started.ends_on_text and not reply.parsed.errors:
            return End(StopReason.FINAL_ANSWER)
    return _out_of_budget(action.results, ledger)


def task_end(results: Sequence[ToolResult]) -> ToolResult | None:
    """Give the first result that ends the task."""
    for result in results:
        if result.ends is not None:
            return result
    return None


def _is_fatal(breaches: Sequence[Breach], constraints: Sequence[Constraint]) -> bool:
    fatal = {constraint.id for constraint in constraints if constraint.ends_episode}
    return any(breach.constraint_id in fatal for breach in breaches)


def _cut_short(ledger: Ledger) -> End:
    """End for the budget that cut the reply; what the collector leaves of the context is a matter of length."""
    budget = ledger.exhausted(_CUTTING)
    reason = StopReason.CONTEXT_OVERFLOW if budget is None else reason_for(budget)
    return End(StopReason.GENERATION_LENGTH if reason is StopReason.CONTEXT_OVERFLOW else reason, budget)


def _out_of_budget(results: Sequence[ToolResult], ledger: Ledger) -> End | None:
    budget = ledger.exhausted(AFTER_STEP[:2])
    if budget is None and any(result.status is CallStatus.REFUSED for result in results):
        budget = ledger.tightest(BudgetKind.TOOL_CALLS)
    budget = budget or ledger.exhausted(AFTER_STEP[2:])
    return None if budget is None else End(reason_for(budget), budget)
