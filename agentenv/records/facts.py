"""The facts of an episode, in the order they happen: the vocabulary of the journal.

A fact is written before anything outside the process happens because of it. `agentenv.engine.machine` turns facts
into the next effect; feeding the stored facts of an episode to a fresh machine replays it, and `agentenv.engine.fold`
turns them into a record.

Order of one attempt::

    EpisodeStarted
      ( PromptRendered
          ( Compacted | SummaryAsked PromptRendered TurnSampled )* PromptRendered?
        TurnSampled
        ActionTaken )*
      PromptRendered(final)?        the last observation, as tokens
      Scored?
    EpisodeEnded

``Stopped`` may come anywhere before the end: a deadline, a cancellation, a fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agentenv.records.axes import (
    FaultDomain,
    Finish,
    Outcome,
    Purpose,
    Scoring,
    StopReason,
)
from agentenv.records.budgets import Budget, BudgetState
from agentenv.records.compaction import Compaction
from agentenv.records.constraints import Breach, Constraint, Visibility
from agentenv.records.episode import FaultReport, NetworkReport, RewardComponent
from agentenv.records.messages import Message, ParsedTurn, Spill, ToolResult, ToolSpec
from agentenv.records.tokens import Sampled, SamplingParams

SCHEMA_VERSION = 1
"""Of every fact and record. A reader refuses a newer one."""

__all__ = [
    "SCHEMA_VERSION",
    "ActionTaken",
    "Compacted",
    "EpisodeEnded",
    "EpisodeStarted",
    "Fact",
    "PromptRendered",
    "Scored",
    "Stopped",
    "SummaryAsked",
    "TurnSampled",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeStarted:
    """Everything that decides the episode, before the first prompt."""

    episode_id: str
    attempt: int
    suite: str
    task_id: str
    task_sha256: str
    task_seed: int
    level: int
    group_id: str
    """Episodes of one task that are compared with one another."""
    member: int
    """0-based index in the group."""
    seed: int
    """Of this episode: call seeds are derived from it."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    budgets: tuple[Budget, ...]
    constraints: tuple[Constraint, ...]
    context_window: int | None
    """Tokens of prompt and completion together that the engine takes; None if there is no limit."""
    sampling: SamplingParams
    ends_on_text: bool
    """Whether a reply without a call is a final answer."""
    scoring_required: bool
    grade_on: tuple[StopReason, ...]
    watched: dict[str, str] = field(default_factory=dict[str, str])
    """Constraint id to the checker's state before the first turn."""
    compressor: str = "none"
    """Name and settings."""
    trigger_tokens: int | None = None
    """Rendered prompt size above which the compressor is asked; None: only when the context is full."""
    reserve_tokens: int = 1
    """Room for a reply that a prompt must leave in the context; less of it asks the compressor."""
    show_budgets: str = "none"
    """Where remaining budgets are shown as text: ``none``, ``tool_result``, ``first_message``."""
    workspace: dict[str, Spill] = field(default_factory=dict[str, Spill])
    """Files at the start, by content hash."""
    network: NetworkReport | None = None
    """What the sandbox can reach; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRendered:
    """The prompt of a call exists as ids."""

    segment: int
    """0-based. Differs from the last one when a new segment begins."""
    new_segment_reason: str | None
    """Why a new segment begins: ``first``, ``compaction k0``, what could not be proved; None if it goes on."""
    appended_ids: bytes
    """(A,) int32: ids after those the segment already has. A whole prompt when the segment is new."""
    prompt_length: int
    """P: appended ids and all before them."""
    purpose: Purpose = Purpose.ACT
    final: bool = False
    """Whether this is the last observation, rendered although nothing is sampled from it."""
    visibility: tuple[Visibility, ...] = ()
    rendering_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryAsked:
    """A compressor wants the policy to write a summary."""

    messages: tuple[Message, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A compressor acted."""

    compaction: Compaction


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSampled:
    """The policy replied."""

    turn: int
    purpose: Purpose
    sampled: Sampled
    sampling: SamplingParams
    """As sent: ``max_tokens`` clamped."""
    seed: int
    finish: Finish
    stop_token_id: int | None
    parsed: ParsedTurn
    queued_s: float = 0.0
    generating_s: float = 0.0
    cached_tokens: int | None = None
    retries: int = 0
    cost_usd: float = 0.0
    elapsed_s: float = 0.0
    """Seconds since the episode began, when the reply was complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTaken:
    """The environment carried out the action of a turn."""

    turn: int
    results: tuple[ToolResult, ...]
    """One per call, in the order of the calls."""
    messages: tuple[Message, ...]
    """The observation as messages: tool results, a parse error; the exact text shown, budgets included."""
    rewards: tuple[RewardComponent, ...] = ()
    """Rewards of this step; most tasks give none before the end."""
    breaches: tuple[Breach, ...] = ()
    watched: dict[str, str] = field(default_factory=dict[str, str])
    workspace: dict[str, Spill] | None = None
    """Snapshot by content hash after the action; None if nothing changed or nothing is snapshot."""
    workspace_too_large: bool = False
    """Whether the workspace has outgrown what is stored of one. From here on the journal does not have it."""
    tool_s: float = 0.0
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Something outside the loop ends the episode: a deadline that fired, a cancellation, a fault."""

    reason: StopReason
    budget: str | None = None
    fault: FaultReport | None = None
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The grader was run, or failed to."""

    scoring: Scoring
    components: tuple[RewardComponent, ...]
    outcome: Outcome
    fault: FaultReport | None = None
    scoring_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeEnded:
    """The last fact of an attempt that ended. An attempt without it was interrupted."""

    reason: StopReason
    terminated: bool
    truncated: bool
    budget: str | None
    """Name of the budget that ran out, for ``task_budget`` and ``collector_budget``."""
    scoring: Scoring
    outcome: Outcome
    fault: FaultDomain
    budgets: tuple[BudgetState, ...]
    cut_by: StopReason | None = None
    """What cut the episode off after its end was decided and before it was scored; it is then run again."""
    elapsed_s: float = 0.0


Fact = (
    EpisodeStarted
    | PromptRendered
    | SummaryAsked
    | Compacted
    | TurnSampled
    | ActionTaken
    | Stopped
    | Scored
    | EpisodeEnded
)
