"""Facts to a record: the stored facts are replayed through a fresh machine, and what it went through is written down.

Replaying checks: facts that contradict one another raise `LawBreach` here, whatever wrote them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agentenv.engine.machine import EpisodeMachine
from agentenv.errors import LawBreach
from agentenv.records.axes import Finish, Purpose, Scoring
from agentenv.records.budgets import BudgetState
from agentenv.records.compaction import Compaction
from agentenv.records.constraints import Visibility
from agentenv.records.episode import EpisodeRecord, RewardComponent, Segment, StepRecord
from agentenv.records.facts import (
    SCHEMA_VERSION,
    ActionTaken,
    Compacted,
    EpisodeEnded,
    EpisodeStarted,
    Fact,
    PromptRendered,
    Scored,
    TurnSampled,
)
from agentenv.records.messages import Message, Role
from agentenv.records.tokens import pack_ids, pack_logprobs, unpack_logprobs


@dataclass(slots=True)
class _OpenSegment:
    reason: str
    purpose: Purpose
    ids: array[int] = field(default_factory=lambda: array("i"))
    mask: bytearray = field(default_factory=bytearray)
    logprobs: array[float] = field(default_factory=lambda: array("f"))

    def append(self, ids: bytes, logprobs: Sequence[float | None], *, sampled: bool) -> None:
        n = len(ids) // 4
        self.ids.frombytes(ids)
        self.mask.extend((b"\x01" if sampled else b"\x00") * n)
        if logprobs:
            self.logprobs.extend(math.nan if value is None else value for value in logprobs)
        else:
            self.logprobs.extend([math.nan] * n)


class _Recorder:
    """Collects what a replay goes through."""

    def __init__(self, started: EpisodeStarted) -> None:
        self.started = started
        self.messages: list[Message] = list(started.messages)
        self.segments: list[_OpenSegment] = []
        self.steps: list[StepRecord] = []
        self.compactions: list[Compaction] = []
        self.compressing_s = 0.0
        self.rendering_s = 0.0
        self.prompt_length = 0
        self.visibility: tuple[Visibility, ...] = ()
        self.final_ids: array[int] | None = None
        self.rewards: tuple[RewardComponent, ...] = ()
        self.scoring_s = 0.0

    def rendered(self, fact: PromptRendered) -> None:
        if fact.new_segment_reason is not None:
            self.segments.append(_OpenSegment(fact.new_segment_reason, fact.purpose))
        segment = self.segments[-1]
        self.rendering_s += fact.rendering_s
        if fact.final:
            self.final_ids = segment.ids[:]
            self.final_ids.frombytes(fact.appended_ids)
            if not segment.ids:
                self.segments.pop()  # nothing is sampled in it: an observation, no training sequence
            return
        segment.append(fact.appended_ids, (), sampled=False)
        self.prompt_length, self.visibility = fact.prompt_length, fact.visibility

    def compacted(self, fact: Compacted) -> None:
        self.compactions.append(fact.compaction)
        self.compressing_s += fact.compaction.duration_s
        self.messages += [edit.message for edit in fact.compaction.edits if edit.message is not None]

    def sampled(self, fact: TurnSampled, budgets: tuple[BudgetState, ...]) -> None:
        segment = self.segments[-1]
        segment.append(fact.sampled.completion_ids, unpack_logprobs(fact.sampled.logprobs), sampled=True)
        self.steps.append(
            StepRecord(
                turn=fact.turn,
                purpose=fact.purpose,
                segment=len(self.segments) - 1,
                prompt_length=self.prompt_length,
                completion_length=fact.sampled.n,
                sampled=fact.sampled,
                sampling=fact.sampling,
                seed=fact.seed,
                finish=fact.finish,
                parsed=fact.parsed,
                results=(),
                observation=(),
                budgets=budgets,
                visibility=self.visibility,
                breaches=(),
                compactions=tuple(self.compactions),
                rewards=(),
                terminated=False,
                truncated=False,
                reason=None,
                rendering_s=self.rendering_s,
                compressing_s=self.compressing_s,
                queued_s=fact.queued_s,
                generating_s=fact.generating_s,
                elapsed_s=fact.elapsed_s,
                cached_tokens=fact.cached_tokens,
                retries=fact.retries,
                cost_usd=fact.cost_usd,
            )
        )
        self.compactions, self.compressing_s, self.rendering_s = [], 0.0, 0.0

    def acted(self, fact: ActionTaken, reply: Message, budgets: tuple[BudgetState, ...]) -> None:
        self.messages += [reply, *fact.messages]
        self.steps[-1] = replace(
            self.steps[-1],
            results=fact.results,
            observation=fact.messages,
            rewards=fact.rewards,
            breaches=fact.breaches,
            budgets=budgets,
            tool_s=fact.tool_s,
            elapsed_s=fact.elapsed_s,
        )

    def scored(self, fact: Scored) -> None:
        self.rewards, self.scoring_s = fact.components, fact.scoring_s

    def last_observation(self) -> bytes | None:
        """Give the last observation as tokens (law 4): a rendered one, else the whole of the running segment."""
        if self.final_ids is not None:
            return pack_ids(self.final_ids)
        return pack_ids(self.segments[-1].ids) if self.segments else None


def replay(facts: Sequence[Fact]) -> EpisodeMachine:
    """Feed stored facts to a fresh machine.

    Raises:
        LawBreach: They contradict one another or come in an order no episode has.
    """
    machine = EpisodeMachine()
    for fact in facts:
        machine.feed(fact)
    return machine


def fold(facts: Sequence[Fact]) -> EpisodeRecord:
    """Make the record of one attempt from its facts, in order.

    Raises:
        LawBreach: There are none, the first is no ``EpisodeStarted``, or they contradict one another.
    """
    if not facts or not isinstance(facts[0], EpisodeStarted):
        raise LawBreach(f"an attempt begins with EpisodeStarted, got {type(facts[0]).__name__ if facts else 'nothing'}")
    machine, recorder = EpisodeMachine(), _Recorder(facts[0])
    ended: EpisodeEnded | None = None
    for fact in facts:
        machine.feed(fact)
        match fact:
            case PromptRendered():
                recorder.rendered(fact)
            case Compacted():
                recorder.compacted(fact)
            case TurnSampled():
                recorder.sampled(fact, machine.ledger.states())
            case ActionTaken():
                recorder.acted(fact, _reply_of(machine, fact), machine.ledger.states())
            case Scored():
                recorder.scored(fact)
            case EpisodeEnded():
                ended = fact
            case _:
                pass
    return _record(machine, recorder, ended)


def _reply_of(machine: EpisodeMachine, fact: ActionTaken) -> Message:
    for message in reversed(machine.window.messages):
        if message.role is Role.ASSISTANT and message.turn == fact.turn:
            return message
    raise LawBreach(f"turn {fact.turn} has an action but no reply in the window")


def _record(machine: EpisodeMachine, recorder: _Recorder, ended: EpisodeEnded | None) -> EpisodeRecord:
    started = recorder.started
    steps = recorder.steps
    if ended is not None and steps:
        steps[-1] = replace(steps[-1], terminated=ended.terminated, truncated=ended.truncated, reason=ended.reason)
    return EpisodeRecord(
        schema_version=SCHEMA_VERSION,
        episode_id=started.episode_id,
        attempt=started.attempt,
        suite=started.suite,
        task_id=started.task_id,
        task_sha256=started.task_sha256,
        task_seed=started.task_seed,
        level=started.level,
        group_id=started.group_id,
        member=started.member,
        seed=started.seed,
        tools=started.tools,
        constraints=started.constraints,
        messages=tuple(recorder.messages),
        segments=tuple(_segment(index, segment) for index, segment in enumerate(recorder.segments)),
        steps=tuple(steps),
        failed_compactions=tuple(recorder.compactions),
        final_prompt_ids=recorder.last_observation(),
        terminated=ended.terminated if ended else False,
        truncated=ended.truncated if ended else False,
        reason=ended.reason if ended else None,
        budget=ended.budget if ended else None,
        scoring=ended.scoring if ended else Scoring.NOT_RUN,
        outcome=machine.outcome,
        fault=machine.fault,
        rewards=recorder.rewards,
        budgets=machine.ledger.states(),
        cut_by=machine.cut_by,
        show_budgets=started.show_budgets,
        scoring_s=recorder.scoring_s,
        elapsed_s=ended.elapsed_s if ended else 0.0,
        notes=_notes(steps),
        network=started.network,
    )


def _segment(index: int, segment: _OpenSegment) -> Segment:
    return Segment(
        index=index,
        reason=segment.reason,
        purpose=segment.purpose,
        token_ids=pack_ids(segment.ids),
        sampled_mask=bytes(segment.mask),
        logprobs=pack_logprobs(segment.logprobs),
    )


def _notes(steps: Sequence[StepRecord]) -> tuple[str, ...]:
    cut = sum(step.finish is Finish.REPETITION for step in steps)
    return (f"{cut} replies were cut by the engine's repetition detector",) if cut else ()
