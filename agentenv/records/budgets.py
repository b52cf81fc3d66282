"""Budgets: what may be spent, who set it, and in which order they are checked.

Order of checks, everywhere and always:

1. Before a reply is sampled: ``turns``, ``sampled_tokens``, ``cost``, ``wall_clock``, then ``context_tokens``. The
   first that leaves nothing ends the episode. What is left of ``sampled_tokens`` and ``context_tokens`` clamps
   ``max_tokens`` of the call; a reply therefore never overruns them.
2. When a reply asks for tool calls: ``tool_calls``. Calls beyond what is left are refused, in order, and the episode
   ends after the step in which one was refused.
3. After the step: ``turns``, ``sampled_tokens``, ``tool_calls`` (only if one was refused), ``cost``,
   ``wall_clock``. A task that ended in the same step ended by itself: its own ending wins.
4. Of two budgets of the same kind the task's is checked first: terminated wins over truncated.
5. ``wall_clock`` also has a deadline: it cuts a reply or a tool that is under way, and the episode ends with it.

``turns``, ``sampled_tokens`` and ``tool_calls`` are never overspent. ``wall_clock`` may be, by the grace it takes to
stop what runs; ``cost`` by the price of one reply; ``context_tokens`` at the end, by a prompt that did not fit and was
not sent. ``remaining`` is then negative: spent + remaining = limit holds at every step (law 6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from agentenv.errors import ConfigError
from agentenv.records.axes import BudgetKind, BudgetOwner


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A declared limit."""

    kind: BudgetKind
    limit: float
    """Turns, tokens, calls: whole numbers. Seconds, US dollars: any positive number."""
    owner: BudgetOwner

    def __post_init__(self) -> None:
        """Refuse limits that mean nothing.

        Raises:
            ConfigError: Zero, negative, not finite, or a fraction of something countable.
        """
        if not math.isfinite(self.limit) or self.limit <= 0:
            raise ConfigError(f"Budget {self.name} must be a positive number, got {self.limit!r}")
        if self.kind not in (BudgetKind.WALL_CLOCK, BudgetKind.COST) and self.limit != int(self.limit):
            raise ConfigError(f"Budget {self.name} counts whole {self.kind}, got {self.limit!r}")

    @property
    def name(self) -> str:
        """``task.turns``, ``collector.wall_clock``, …: how an ending names it."""
        return f"{self.owner}.{self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """A budget at one moment. Invariant: spent + remaining = limit."""

    name: str
    kind: BudgetKind
    owner: BudgetOwner
    limit: float
    spent: float

    @property
    def remaining(self) -> float:
        """What is left; negative where something was overspent: see the order of checks above."""
        return self.limit - self.spent
