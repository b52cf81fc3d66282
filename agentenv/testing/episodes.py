"""Coherent episode records: built call by call for examples, and drawn for property tests.

`EpisodeBuilder` keeps the laws a fold keeps (prefix, mask, alignment), so that readers, exporters and metrics can be
tested without a policy, a tokenizer or an engine.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from agentenv.records import axes
from agentenv.records.episode import EpisodeRecord, FaultReport, RewardComponent, Segment, StepRecord
from agentenv.records.facts import SCHEMA_VERSION
from agentenv.records.messages import ParsedTurn
from agentenv.records.tokens import (
    LogprobSpan,
    Sampled,
    SamplingParams,
    VersionSpan,
    pack_ids,
    pack_logprobs,
    unpack_ids,
    unpack_logprobs,
)
from agentenv.testing import strategies as parts


def reply(
    ids: Sequence[int],
    logprobs: Sequence[float | None] | None = None,
    *,
    distribution: axes.Distribution = axes.Distribution.MODEL,
    versions: Sequence[tuple[int, int, str | None]] | None = None,
    text: str | None = None,
) -> Sampled:
    """Make a reply with one log-prob span, and one version span unless more are given."""
    n = len(ids)
    spans = versions if versions is not None else [(0, n, "1")]
    return Sampled(
        completion_ids=pack_ids(ids),
        logprobs=pack_logprobs([-0.5] * n if logprobs is None else logprobs),
        logprob_spans=(LogprobSpan(start=0, end=n, distribution=distribution, evidence=axes.Evidence.PROBED),)
        if n
        else (),
        version_spans=tuple(VersionSpan(start=start, end=end, version=version) for start, end, version in spans if n),
        text=text,
    )


@dataclass(slots=True)
class _Open:
    """A segment that grows."""

    reason: str
    purpose: axes.Purpose
    ids: array[int]
    mask: bytearray
    logprobs: list[float | None]

    def append(self, ids: Sequence[int], logprobs: Sequence[float | None] | None = None) -> None:
        self.ids.extend(ids)
        self.mask.extend(bytes([logprobs is not None]) * len(ids))
        self.logprobs.extend([None] * len(ids) if logprobs is None else logprobs)

    def close(self, index: int) -> Segment:
        return Segment(
            index=index,
            reason=self.reason,
            purpose=self.purpose,
            token_ids=pack_ids(self.ids),
            sampled_mask=bytes(self.mask),
            logprobs=pack_logprobs(self.logprobs),
        )


@dataclass(slots=True)
class EpisodeBuilder:
    """Builds one attempt: prompts and replies in order, then `end`."""

    episode_id: str = "e0"
    attempt: int = 1
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of the record: ``group_id``, ``member``, ``constraints``, …"""
    _segments: list[_Open] = field(default_factory=list[_Open])
    _steps: list[StepRecord] = field(default_factory=list[StepRecord])

    def prompt(
        self, ids: Sequence[int], *, new: str | None = None, purpose: axes.Purpose = axes.Purpose.ACT
    ) -> EpisodeBuilder:
        """Append observation ids; the first prompt and one with ``new`` (a reason) begin a segment."""
        if not self._segments or new is not None:
            self._segments.append(_Open(new or "first", purpose, array("i"), bytearray(), []))
        self._segments[-1].append(ids)
        return self

    def turn(self, sampled: Sampled, **changes: Any) -> EpisodeBuilder:
        """Append a reply; ``changes`` are fields of its `StepRecord`."""
        segment = self._segments[-1]
        step = StepRecord(
            turn=len(self._steps),
            purpose=segment.purpose,
            segment=len(self._segments) - 1,
            prompt_length=len(segment.ids),
            completion_length=sampled.n,
            sampled=sampled,
            sampling=SamplingParams(),
            seed=len(self._steps),
            finish=axes.Finish.STOP,
            parsed=ParsedTurn(text=""),
            results=(),
            observation=(),
            budgets=(),
            visibility=(),
            breaches=(),
            compactions=(),
            rewards=(),
            terminated=False,
            truncated=False,
            reason=None,
        )
        self._steps.append(replace(step, **changes))
        segment.append(unpack_ids(sampled.completion_ids), unpack_logprobs(sampled.logprobs) or [None] * sampled.n)
        return self

    def end(
        self,
        reason: axes.StopReason | None = axes.StopReason.COMPLETED,
        *,
        reward: float | None = 1.0,
        final: Sequence[int] = (),
        **changes: Any,
    ) -> EpisodeRecord:
        """Give the record.

        Args:
            reason: None: interrupted, and therefore not scored.
            reward: None: not scored.
            final: Ids after the last reply that make the last observation.
            changes: Further fields of the record.
        """
        reward = None if reason is None else reward
        terminated = reason is not None and reason.terminated
        truncated = reason is not None and not reason.terminated
        steps = self._steps
        if steps and reason is not None:
            steps = [*steps[:-1], replace(steps[-1], terminated=terminated, truncated=truncated, reason=reason)]
        component = RewardComponent(name="test", value=reward, source="test")
        fault = FaultReport(domain=axes.FaultDomain.SANDBOX, error="SandboxFault", message="lost")
        outcome = {None: axes.Outcome.UNKNOWN, 1.0: axes.Outcome.SUCCESS}.get(reward, axes.Outcome.FAILURE)
        record = EpisodeRecord(
            schema_version=SCHEMA_VERSION,
            episode_id=self.episode_id,
            attempt=self.attempt,
            suite="arithmetic",
            task_id="arithmetic/l1/000000",
            task_sha256="0" * 64,
            task_seed=0,
            level=1,
            group_id="g0",
            member=0,
            seed=7,
            tools=(),
            constraints=(),
            messages=(),
            segments=tuple(segment.close(index) for index, segment in enumerate(self._segments)),
            steps=tuple(steps),
            failed_compactions=(),
            final_prompt_ids=pack_ids([*self._segments[-1].ids, *final]) if self._segments else None,
            terminated=terminated,
            truncated=truncated,
            reason=reason,
            budget=None,
            scoring=axes.Scoring.NOT_RUN if reward is None else axes.Scoring.SCORED,
            outcome=outcome,
            fault=fault if reason is axes.StopReason.FAULT else None,
            rewards=() if reward is None else (component,),
            budgets=(),
        )
        return replace(record, **(self.fields | changes))


_ids = st.tuples(st.integers(0, 2**31 - 6), st.integers(1, 5)).map(lambda drawn: range(drawn[0], drawn[0] + drawn[1]))
_final_ids = st.integers(0, 3).map(range)
_counts = st.integers(0, 3)
_purposes = st.sampled_from(axes.Purpose)
_reasons = st.sampled_from(axes.StopReason)
_reasons_or_none = st.none() | _reasons
_scorings = st.sampled_from(axes.Scoring)
_outcomes = st.sampled_from(axes.Outcome)
_rewards = st.floats(-2, 2)
_seconds = st.floats(0, 100)
_samplings = st.just(SamplingParams()) | parts.sampling_params
_breaches = st.lists(parts.breaches, max_size=1).map(tuple)
_replies = parts.sampled_replies()


@st.composite
def episode_records(draw: st.DrawFn, *, episode_id: str | None = None, ended: bool | None = None) -> EpisodeRecord:
    """Coherent records of every kind: several segments, empty replies, nulls, mixed spans, every ending and score.

    Args:
        draw: Given by hypothesis.
        episode_id: Fixed id; None draws one.
        ended: Whether the attempt came to its end; None draws it.
    """
    builder = EpisodeBuilder(episode_id=draw(parts.names) if episode_id is None else episode_id)
    for index in range(draw(_counts)):
        builder.prompt(draw(_ids), new=f"compaction k{index}" if index else None, purpose=draw(_purposes))
        for number in range(draw(_counts)):
            if number:
                builder.prompt(draw(_ids))
            builder.turn(
                draw(_replies), sampling=draw(_samplings), breaches=draw(_breaches), generating_s=draw(_seconds)
            )
    reason = draw(_reasons_or_none) if ended is None else (draw(_reasons) if ended else None)
    scoring = draw(_scorings) if reason is not None else axes.Scoring.NOT_RUN
    return builder.end(
        reason,
        reward=draw(_rewards) if scoring is axes.Scoring.SCORED else None,
        final=draw(_final_ids),
        scoring=scoring,
        outcome=draw(_outcomes),
        group_id=draw(parts.names),
    )
