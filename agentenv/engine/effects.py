"""What the machine asks the shell to do next. The shell performs it and feeds back the fact."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from agentenv.records.axes import Purpose, StopReason
from agentenv.records.messages import Message, ParsedTurn, ToolCall, ToolResult, ToolSpec
from agentenv.records.tokens import SamplingParams


@dataclass(slots=True)
class Render:
    """Make the prompt. Answer: ``PromptRendered``."""

    window: tuple[Message, ...]
    """Everything the policy will see."""
    new_messages: tuple[Message, ...]
    """The part of the window that is not in ``previous_ids`` yet."""
    tools: tuple[ToolSpec, ...]
    previous_ids: array[int] | None
    """Last prompt and completion of the running segment; None: open a new segment."""
    reason: str
    """Why a new segment must be opened, where ``previous_ids`` is None."""
    segment: int
    """Index of the running segment, or of the one to open."""
    purpose: Purpose
    final: bool


@dataclass(slots=True)
class Compress:
    """Plan and apply a compaction. Answer: ``Compacted`` or ``SummaryAsked``."""

    id: str
    window: tuple[Message, ...]
    tokens: int
    budget_tokens: int
    trigger: str
    taken: frozenset[str]
    """Ids of messages that compactions made and later ones removed: a new message may have none of them."""
    denied: str | None
    """Why the summary that the compressor asked for cannot be sampled: the attempt has failed."""
    summary: str | None
    summary_turns: tuple[int, ...]


@dataclass(slots=True)
class Sample:
    """Sample a reply. Answer: ``TurnSampled``."""

    prompt_ids: array[int]
    """(P,) do not change: it is the machine's own."""
    window: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    sampling: SamplingParams
    """``max_tokens`` clamped."""
    seed: int
    turn: int
    purpose: Purpose


@dataclass(slots=True)
class Act:
    """Carry out the action of a turn. Answer: ``ActionTaken``."""

    turn: int
    parsed: ParsedTurn
    allowed_calls: int | None
    """Calls that may be run, in order; None: all. The rest is refused."""


@dataclass(slots=True)
class Score:
    """Run the grader. Answer: ``Scored``."""

    reason: StopReason
    answer: str | None
    submitted: object | None
    calls: tuple[tuple[ToolCall, ToolResult], ...]


@dataclass(slots=True)
class Finish:
    """Write the last fact. Answer: the ``EpisodeEnded`` that `EpisodeMachine.ending` makes."""


@dataclass(slots=True)
class Ended:
    """Nothing is left to do."""


Effect = Render | Compress | Sample | Act | Score | Finish | Ended
