"""Messages, tool calls, tool results: the history as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agentenv.records.axes import CallStatus


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call the policy asked for."""

    id: str
    """Unique in the episode; the same on every hop, so a late reply cannot be taken for the next one."""
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of the history. Immutable: a compaction replaces messages, it does not edit them."""

    id: str
    """Unique in the episode: ``m0``, ``m1``, … in order of appearance."""
    role: Role
    text: str
    calls: tuple[ToolCall, ...] = ()
    """Only on assistant messages."""
    call_id: str | None = None
    """Only on tool messages: the call this answers; None answers the assistant turn as a whole (a parse error)."""
    name: str | None = None
    """Only on tool messages: the tool."""
    pinned: bool = False
    """A compressor must keep it (law 7). System messages are pinned by their role."""
    turn: int | None = None
    """For assistant and tool messages, the turn they belong to; None before the first turn, or made by a compressor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What the policy is told about a tool."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """Where the whole of a cut text lies: content-addressed in the run's blob folder."""

    sha256: str
    size_bytes: int


class TaskEnd(StrEnum):
    """What a tool may say about the task's end."""

    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What came of one call."""

    call_id: str
    name: str
    status: CallStatus
    text: str
    """What the policy is shown, already cut to the output cap with its head, tail and counts."""
    exit_code: int | None = None
    duration_s: float = 0.0
    """Clock field: left out when records are compared."""
    bytes_dropped: int = 0
    """Bytes of output that are not in ``text``."""
    full_output: Spill | None = None
    """The whole output where it was cut; None where ``text`` is all there was."""
    ends: TaskEnd | None = None
    """Set by a tool that ends the task (``submit``)."""
    value: Any = None
    """What a terminating or data-bearing tool hands to the grader; JSON-compatible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseError:
    """One stretch of a reply that was meant as an action and is none."""

    reason: str
    """For the model: what is wrong and what to write instead."""
    excerpt: str
    """At most 200 characters of the text at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTurn:
    """What one reply means. Parsing is total: every id sequence has a parsed turn."""

    text: str
    """The reply without its calls and control tokens."""
    calls: tuple[ToolCall, ...] = ()
    errors: tuple[ParseError, ...] = ()
    reasoning: str | None = None
    closed: bool = True
    """Whether the policy sampled the end of its turn (False after a length cut)."""
