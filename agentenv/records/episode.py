"""The record of an episode: what `agentenv.engine.fold` makes of its facts. Readers and exporters see only this."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agentenv.records.axes import (
    FaultDomain,
    Finish,
    NetworkAccess,
    Outcome,
    Purpose,
    Scoring,
    StopReason,
)
from agentenv.records.budgets import BudgetState
from agentenv.records.compaction import Compaction
from agentenv.records.constraints import Breach, Constraint, Visibility
from agentenv.records.messages import Message, ParsedTurn, ToolResult, ToolSpec
from agentenv.records.tokens import Sampled, SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardComponent:
    """One part of a reward, with where it comes from."""

    name: str
    value: float | None
    """None unless scored."""
    source: Literal["test", "environment", "human", "model"]
    status: Scoring = Scoring.SCORED
    detail: str = ""
    """At most 500 characters: what was compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultReport:
    """Whose fault it was, and what happened."""

    domain: FaultDomain
    error: str
    """Class of the exception."""
    message: str
    """At most 2,000 characters, secrets left out."""
    retryable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkReport:
    """What the sandbox of an episode could reach.

    Measured in the first sandbox of a run that was given these hosts, and recorded with every episode of the kind:
    the provider and the hosts decide it.
    """

    asked: tuple[str, ...]
    """The hosts that the task names; empty: none."""
    access: NetworkAccess | None
    """As measured from inside; None: it could not be measured."""
    interfaces: tuple[str, ...]
    """Beside ``lo``."""
    detail: str
    """What was tried from inside and what happened, or why nothing was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A maximal run of calls in which every prompt begins with the previous prompt and completion, id for id.

    Arrays are packed and aligned: position ``i`` of each belongs to ``token_ids[i]`` (own-token alignment: the
    log-prob at ``i`` was predicted by the logits at ``i - 1``).
    """

    index: int
    reason: str
    """Why it began: ``first``, ``compaction k0``, or what the renderer could not prove."""
    purpose: Purpose
    token_ids: bytes
    """(T,) int32."""
    sampled_mask: bytes
    """(T,) uint8, 1 where the behaviour policy chose the token."""
    logprobs: bytes
    """(T,) float32; NaN (null) wherever nothing was sampled or the engine gave no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One reply and what came of it."""

    turn: int
    """0-based over all replies of the episode, summaries included."""
    purpose: Purpose
    segment: int
    prompt_length: int
    """P: the prompt is ``segment.token_ids[:P]``."""
    completion_length: int
    """C: the completion is ``segment.token_ids[P:P + C]``."""
    sampled: Sampled
    sampling: SamplingParams
    seed: int
    finish: Finish
    parsed: ParsedTurn
    results: tuple[ToolResult, ...]
    observation: tuple[Message, ...]
    """What the policy was shown next, as messages, budget text included."""
    budgets: tuple[BudgetState, ...]
    """After the step."""
    visibility: tuple[Visibility, ...]
    """Of each live constraint in this call's prompt."""
    breaches: tuple[Breach, ...]
    compactions: tuple[Compaction, ...]
    """Attempted before this call, since the last one."""
    rewards: tuple[RewardComponent, ...]
    terminated: bool
    truncated: bool
    reason: StopReason | None
    """Set on the step that ended the episode; None on every other."""
    rendering_s: float = 0.0
    compressing_s: float = 0.0
    queued_s: float = 0.0
    generating_s: float = 0.0
    tool_s: float = 0.0
    elapsed_s: float = 0.0
    cached_tokens: int | None = None
    retries: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRecord:
    """One attempt at one episode."""

    schema_version: int
    episode_id: str
    attempt: int
    suite: str
    task_id: str
    task_sha256: str
    task_seed: int
    level: int
    group_id: str
    member: int
    seed: int
    tools: tuple[ToolSpec, ...]
    constraints: tuple[Constraint, ...]
    messages: tuple[Message, ...]
    """Every message that ever was, in order of appearance."""
    segments: tuple[Segment, ...]
    steps: tuple[StepRecord, ...]
    failed_compactions: tuple[Compaction, ...]
    """Attempts after the last call, if no call came of them."""
    final_prompt_ids: bytes | None
    """(F,) int32: the last observation as tokens, what the next decision would have been conditioned on; for a reply
    cut by length, its own prompt and partial ids. None if the episode never had a prompt."""
    terminated: bool
    truncated: bool
    reason: StopReason | None
    """None: the attempt was interrupted and never ended."""
    budget: str | None
    scoring: Scoring
    outcome: Outcome
    fault: FaultReport | None
    rewards: tuple[RewardComponent, ...]
    """Of the whole episode, from its grader."""
    budgets: tuple[BudgetState, ...]
    cut_by: StopReason | None = None
    """What cut the episode off after its end was decided and before it was scored; None for all others."""
    show_budgets: str = "none"
    scoring_s: float = 0.0
    elapsed_s: float = 0.0
    notes: tuple[str, ...] = field(default=())
    network: NetworkReport | None = None
    """What the sandbox could reach; None where there was none, or where none was recorded."""

    @property
    def ended(self) -> bool:
        """Whether the attempt came to its end."""
        return self.reason is not None

    @property
    def done(self) -> bool:
        """Whether nothing is left to do for this episode: it ended, and no fault, pause or cancellation is in it."""
        ended = self.reason is not None and not self.reason.unfinished
        return ended and self.fault is None and self.cut_by is None

    @property
    def reward(self) -> float | None:
        """Sum of all reward components; None unless the episode was scored and every component has a value."""
        if self.scoring is not Scoring.SCORED:
            return None
        parts = [part.value for step in self.steps for part in step.rewards]
        parts += [part.value for part in self.rewards]
        if any(value is None for value in parts):
            return None
        return sum(value for value in parts if value is not None)

    @property
    def breaches(self) -> tuple[Breach, ...]:
        """Every breach, in order."""
        return tuple(breach for step in self.steps for breach in step.breaches)

    @property
    def fault_domain(self) -> FaultDomain:
        """Whose fault it was."""
        return self.fault.domain if self.fault else FaultDomain.NONE
