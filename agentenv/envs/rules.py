"""Follows the constraints of one episode: what they watch, whether the policy could see them, what broke them."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence

from agentenv.core.constraint import Checker, Effect
from agentenv.core.renderer import Tokenizer
from agentenv.core.sandbox import Sandbox
from agentenv.engine.visibility import VisibilityTracker
from agentenv.records.axes import Purpose, VisibilityLevel
from agentenv.records.compaction import Compaction
from agentenv.records.constraints import Breach, CheckerSpec, Constraint, Visibility
from agentenv.records.messages import ToolCall, ToolResult

_THREAD_ABOVE_IDS = 8_192
"""More new ids of a prompt are decoded in a thread, so that the other episodes of the loop go on."""


class RuleWatch:
    """The live constraints of one episode.

    Laws 8 and 9: visibility is decided on the ids of each prompt, a breach on what the action did.
    """

    def __init__(
        self, constraints: Sequence[Constraint], make_checker: Callable[[CheckerSpec], Checker], tokenizer: Tokenizer
    ) -> None:
        """Make the checkers; nothing is looked at yet.

        Raises:
            ConfigError, UnknownNameError: A checker cannot be made.
        """
        self.watched: dict[str, str] = {}
        """Constraint id to the state its checker saw last."""
        self._checkers = {rule.id: make_checker(rule.checker) for rule in constraints}
        self._seen: tuple[Visibility, ...] = ()
        self._tracker: VisibilityTracker | None = None
        if constraints:
            self._tracker = VisibilityTracker(
                constraints, tokenizer.decode, spell=lambda text: tokenizer.decode(tokenizer.encode_plain(text))
            )

    async def observe(self, sandbox: Sandbox | None) -> None:
        """Look at what the rules watch.

        Raises:
            SandboxFault: The sandbox is gone.
        """
        self.watched = {name: await checker.observe(sandbox) for name, checker in self._checkers.items()}

    async def see(
        self, segment: int, before: array[int], appended: array[int], purpose: Purpose
    ) -> tuple[Visibility, ...]:
        """Say which rules stand in the prompt ``before + appended``. Cancelled, it can say nothing any more."""
        if self._tracker is None:
            return ()
        if len(appended) > _THREAD_ABOVE_IDS:
            self._seen = await asyncio.to_thread(self._tracker.observe, segment, before, appended, purpose=purpose)
        else:
            self._seen = self._tracker.observe(segment, before, appended, purpose=purpose)
        return self._seen

    def compacted(self, compaction: Compaction) -> None:
        """Take note of a compaction, for what the next prompt does not show any more."""
        if self._tracker is not None:
            self._tracker.compacted(compaction)

    async def judge(
        self, turn: int, executed: tuple[tuple[ToolCall, ToolResult], ...], sandbox: Sandbox | None
    ) -> tuple[Breach, ...]:
        """Compare what the rules watch before and after an action, and attribute each breach."""
        if not self._checkers:
            return ()
        before = self.watched
        if executed or sandbox is not None:  # what an earlier action left running may be at work without a call
            await self.observe(sandbox)
        seen = {entry.constraint_id: entry for entry in self._seen}
        effect = Effect(turn=turn, calls=executed)
        breaches: list[Breach] = []
        for name, checker in self._checkers.items():
            verdict = checker.check(before[name], effect, self.watched[name])
            if verdict.breached:
                breaches.append(_breach(name, turn, verdict.evidence, seen.get(name)))
        return tuple(breaches)


def _breach(name: str, turn: int, evidence: str, entry: Visibility | None) -> Breach:
    return Breach(
        constraint_id=name,
        turn=turn,
        evidence=evidence,
        visible=entry is not None and entry.level is not VisibilityLevel.ABSENT,
        compaction_id=entry.compaction_id if entry else None,
    )
