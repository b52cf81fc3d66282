"""What was spent, what remains, and which budget ends the episode. One place, one order (see `records.budgets`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from agentenv.errors import ConfigError
from agentenv.records.axes import BudgetKind, BudgetOwner, StopReason
from agentenv.records.budgets import Budget, BudgetState

BEFORE_SAMPLING = (BudgetKind.TURNS, BudgetKind.SAMPLED_TOKENS, BudgetKind.COST, BudgetKind.WALL_CLOCK)
"""Kinds checked before a reply is sampled, in order; context tokens come after them, through the clamp."""

AFTER_STEP = BEFORE_SAMPLING
"""Kinds checked after a step, in order; tool calls only if one was refused."""

_OWNERS = (BudgetOwner.TASK, BudgetOwner.COLLECTOR)


class Clamp(NamedTuple):
    """How long the next reply may be."""

    max_tokens: int
    """May be 0 or less: nothing can be sampled."""
    bound_by: Budget | None
    """The budget that set it; None if the sampling parameters did."""


class Ledger:
    """Spend of one episode.

    Invariant: for every budget, spent + remaining = limit, at every moment (law 6).
    """

    __slots__ = ("_by_kind", "_spent", "_tightest", "budgets")

    def __init__(self, budgets: Sequence[Budget]) -> None:
        """Open a ledger.

        Raises:
            ConfigError: Two budgets have the same owner and kind.
        """
        self.budgets = tuple(budgets)
        self._by_kind: dict[BudgetKind, list[Budget]] = {}
        self._spent: dict[BudgetKind, float] = dict.fromkeys(BudgetKind, 0)
        names = [budget.name for budget in self.budgets]
        if len(set(names)) != len(names):
            raise ConfigError(f"each budget may be set once per owner, got {', '.join(sorted(names))}")
        for owner in _OWNERS:  # the task's come first: terminated wins over truncated
            for budget in self.budgets:
                if budget.owner is owner:
                    self._by_kind.setdefault(budget.kind, []).append(budget)
        self._tightest = {kind: min(each, key=lambda budget: budget.limit) for kind, each in self._by_kind.items()}

    def charge(self, kind: BudgetKind, amount: float) -> None:
        """Add to what was spent."""
        self._spent[kind] += amount

    def level(self, kind: BudgetKind, value: float) -> None:
        """Set what is a level (context tokens) or a reading (wall-clock) and not a sum."""
        self._spent[kind] = value

    def spent(self, kind: BudgetKind) -> float:
        """Give what was spent of one kind."""
        return self._spent[kind]

    def remaining(self, kind: BudgetKind) -> float:
        """Give what is left of the tightest budget of a kind; ``inf`` if there is none."""
        budget = self.tightest(kind)
        return math.inf if budget is None else budget.limit - self._spent[kind]

    def tightest(self, kind: BudgetKind) -> Budget | None:
        """Give the budget of a kind with the least left; of equals the task's."""
        return self._tightest.get(kind)

    def exhausted(self, kinds: Sequence[BudgetKind]) -> Budget | None:
        """Give the first budget, in the order of ``kinds`` and the task's before the collector's, with nothing left."""
        for kind in kinds:
            for budget in self._by_kind.get(kind, ()):
                if self._spent[kind] >= budget.limit:
                    return budget
        return None

    def clamp(self, max_tokens: int, prompt_length: int) -> Clamp:
        """Say how many tokens the next reply may have after a prompt of ``prompt_length`` ids."""
        allowed, bound_by = max_tokens, None
        for kind, used in (
            (BudgetKind.SAMPLED_TOKENS, self._spent[BudgetKind.SAMPLED_TOKENS]),
            (BudgetKind.CONTEXT_TOKENS, prompt_length),
        ):
            budget = self.tightest(kind)
            if budget is not None and budget.limit - used < allowed:
                allowed, bound_by = int(budget.limit - used), budget
        return Clamp(allowed, bound_by)

    def states(self, *, more_calls: int = 0) -> tuple[BudgetState, ...]:
        """Give every budget, in the order declared.

        Args:
            more_calls: Tool calls to count as spent although they are not charged yet.
        """
        more = {BudgetKind.TOOL_CALLS: more_calls}
        return tuple(
            BudgetState(
                name=budget.name,
                kind=budget.kind,
                owner=budget.owner,
                limit=budget.limit,
                spent=self._spent[budget.kind] + more.get(budget.kind, 0),
            )
            for budget in self.budgets
        )


def reason_for(budget: Budget) -> StopReason:
    """Say how running out of a budget ends the episode: the task's terminates, the collector's truncates."""
    if budget.owner is BudgetOwner.TASK:
        return StopReason.TASK_BUDGET
    if budget.kind is BudgetKind.CONTEXT_TOKENS:
        return StopReason.CONTEXT_OVERFLOW
    return StopReason.COLLECTOR_BUDGET


_UNITS = {
    BudgetKind.TURNS: "turns",
    BudgetKind.SAMPLED_TOKENS: "sampled tokens",
    BudgetKind.CONTEXT_TOKENS: "context tokens",
    BudgetKind.TOOL_CALLS: "tool calls",
    BudgetKind.WALL_CLOCK: "seconds",
    BudgetKind.COST: "US dollars",
}


def budget_text(states: Sequence[BudgetState]) -> str:
    """Write what is left for the policy to read: one line, the tightest budget of each kind.

    >>> from agentenv.records.axes import BudgetKind, BudgetOwner
    >>> turns = BudgetState(name="task.turns", kind=BudgetKind.TURNS, owner=BudgetOwner.TASK, limit=8, spent=3)
    >>> budget_text([turns])
    '[left: 5 of 8 turns]'
    """
    tightest: dict[BudgetKind, BudgetState] = {}
    for state in states:
        known = tightest.get(state.kind)
        if known is None or state.remaining < known.remaining:
            tightest[state.kind] = state
    parts = [
        f"{_amount(s.kind, max(s.remaining, 0))} of {_amount(s.kind, s.limit)} {_UNITS[s.kind]}"
        for s in tightest.values()
    ]
    return f"[left: {', '.join(parts)}]" if parts else ""


def _amount(kind: BudgetKind, value: float) -> str:
    """Write counts whole, seconds to a tenth, dollars to a hundredth of a cent."""
    if kind is BudgetKind.COST:
        return f"{value:.4f}"
    return f"{value:.1f}" if kind is BudgetKind.WALL_CLOCK else f"{value:.0f}"
