"""The contract of a compressor: a planner over messages with ids, never a rewriter of text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentenv.core.deadline import Deadline
from agentenv.records.compaction import Edit
from agentenv.records.constraints import Constraint
from agentenv.records.messages import Message, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionView:
    """What a compressor may look at."""

    messages: tuple[Message, ...]
    """The window, in order."""
    tools: tuple[ToolSpec, ...]
    tokens: int
    """Rendered size of the window now, tool schemas and generation prompt included."""
    count: Callable[[Sequence[Message]], Awaitable[int]]
    """Rendered size of any candidate window, by the policy's own tokenizer and template.

    A whole window takes milliseconds to render, so it happens in a thread: other episodes go on meanwhile, and a
    candidate must not be changed before its count is there. Raises ``ConfigError`` where the template refuses it.
    """
    constraints: tuple[Constraint, ...]
    """Live constraints, with their carriers. A compressor may use them; nothing obliges it to (law 8 watches)."""
    trigger: str
    """``budget`` or ``overflow``."""
    summary: str | None = None
    """What the policy wrote, after a `SummaryRequest`; None in the first call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """Asks the policy itself to write a summary: an action with tokens, log-probs and credit of its own."""

    messages: tuple[Message, ...]
    """Prompt of the summary, rendered in a segment of its own, without tools."""
    max_tokens: int


class Compressor(Protocol):
    """Plans compactions.

    Law 7: after the plan is applied, system and pinned messages stand, tool calls and results are paired, and the
    rendered prompt fits ``budget_tokens`` and is smaller than before; otherwise the attempt is recorded as failed and
    the history is unchanged. The machine checks; a compressor cannot skip it.
    """

    @property
    def name(self) -> str:
        """Name and settings, such as ``window:2048``; goes into records and the manifest."""
        ...

    @property
    def sha256(self) -> str:
        """Hash of its source and settings, and of the model it uses if any."""
        ...

    @property
    def trigger_tokens(self) -> int | None:
        """Rendered prompt size above which it wants to compact; None: only when the engine's window is hit."""
        ...

    async def plan(
        self, view: CompressionView, budget_tokens: int, deadline: Deadline
    ) -> tuple[Edit, ...] | SummaryRequest:
        """Plan one compaction.

        Runs on the event loop, which all episodes share: what takes long beside ``view.count`` belongs into a thread.

        Args:
            view: The window and how to measure candidates.
            budget_tokens: Most tokens the rendered prompt may have afterwards.
            deadline: When the harness stops waiting, and cancels.

        Raises:
            CannotCompact: Nothing it may remove makes the prompt fit; recorded as a failed attempt.
        """
        ...


class CannotCompact(Exception):
    """A compressor cannot make the window fit; the text says why."""
