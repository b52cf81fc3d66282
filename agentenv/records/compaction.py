"""Edit operations of a compressor over message ids, and the record of one compaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentenv.records.axes import CompactionOutcome
from agentenv.records.messages import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One operation on one message of the window.

    ``keep`` leaves it; ``drop`` removes it; ``replace`` puts ``message`` in its place; ``insert`` puts ``message``
    before it (``message_id`` None: at the end). Every message of the window is named by exactly one keep, drop or
    replace, in window order; inserts stand where they take effect.
    """

    op: Literal["keep", "drop", "replace", "insert"]
    message_id: str | None
    message: Message | None = None
    sources: tuple[str, ...] = ()
    """Messages that ``message`` stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """One recorded act of a compressor, applied or not."""

    id: str
    """``k0``, ``k1``, … in the episode."""
    compressor: str
    """Name and settings, such as ``window:2048``."""
    trigger: str
    """``budget``: the rendered prompt passed what the compressor may fill. ``overflow``: the engine's window is hit."""
    budget_tokens: int
    """Tokens the rendered prompt, tool schemas included, may have afterwards."""
    edits: tuple[Edit, ...]
    tokens_before: int
    tokens_after: int | None
    """Rendered size afterwards; None if the attempt failed before rendering."""
    outcome: CompactionOutcome
    reason: str | None = None
    """Why it failed."""
    duration_s: float = 0.0
    """Clock field."""
    summary_turns: tuple[int, ...] = ()
    """Turns sampled to write a summary, where the policy wrote one."""
