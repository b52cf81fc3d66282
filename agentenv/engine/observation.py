"""What the policy is shown after its action, as messages: results, parse errors, and what is left if asked for.

Remaining budgets in text stand *inside* a tool result or the first message, never in a user message of their own:
templates of the Qwen kind rewrite earlier turns when a new user message comes.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentenv.engine.ledger import budget_text
from agentenv.records.budgets import BudgetState
from agentenv.records.messages import Message, ParsedTurn, Role, ToolCall, ToolResult

NO_ACTION = "That reply has no tool call. Call one of the tools, in the form described at the start."


def observation(
    *,
    first_id: int,
    turn: int,
    parsed: ParsedTurn,
    results: Sequence[ToolResult],
    ends_on_text: bool,
    left: Sequence[BudgetState],
) -> tuple[Message, ...]:
    """Make the messages of one observation.

    Args:
        first_id: Number of the first message's id.
        turn: The turn whose action this answers.
        parsed: The action.
        results: One per call, in order.
        ends_on_text: Whether a reply without a call ends the episode (then it gets no observation).
        left: Budgets to show as text; empty to show none.
    """
    shown: list[tuple[str | None, str | None, str]] = [(result.call_id, result.name, result.text) for result in results]
    shown += [(None, None, f"Error: {error.reason}") for error in parsed.errors]
    if not parsed.calls and not parsed.errors and not ends_on_text:
        shown.append((None, None, f"Error: {NO_ACTION}"))
    if shown and left:
        call_id, name, text = shown[-1]
        shown[-1] = (call_id, name, f"{text}\n{budget_text(left)}")
    return tuple(
        Message(id=f"m{first_id + n}", role=Role.TOOL, text=text, call_id=call_id, name=name, turn=turn)
        for n, (call_id, name, text) in enumerate(shown)
    )


def executed_calls(parsed: ParsedTurn, results: Sequence[ToolResult]) -> tuple[tuple[ToolCall, ToolResult], ...]:
    """Pair every call whose tool was run with its result, in order."""
    return tuple((call, result) for call, result in zip(parsed.calls, results, strict=True) if result.status.ran)
