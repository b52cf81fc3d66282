"""The contract of checkers: a violation is decided by what happened, not by what was said (law 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentenv.core.sandbox import Sandbox
from agentenv.records.messages import ToolCall, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one action did."""

    turn: int
    calls: tuple[tuple[ToolCall, ToolResult], ...]
    """Executed calls with their results, in order; refused ones are not here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a checker found about one action."""

    breached: bool
    evidence: str = ""
    """What was observed, e.g. both hashes; at most 500 characters."""


class Checker(Protocol):
    """Watches one constraint through one episode.

    ``observe`` is called once before the first turn and after every action; ``check`` compares. Both halves are
    plain data, so a verdict can be recomputed from the journal.
    """

    async def observe(self, sandbox: Sandbox | None) -> str:
        """Give the watched state as text (a hash, ``absent``); empty where there is nothing to watch.

        Raises:
            SandboxFault: Passed through.
        """
        ...

    def check(self, before: str, effect: Effect, after: str) -> Verdict:
        """Decide. Pure. A state that was already in breach before the action is not this action's breach."""
        ...


CheckerStates = Sequence[tuple[str, str]]
"""(constraint id, watched state) of every live constraint."""
