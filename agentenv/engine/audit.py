"""Audits one attempt against the laws, from its stored facts alone.

Each check is one generator named after its law. What the engine itself would say (law 1's echo, law 3's numbers) needs
the engine: see `agentenv verify --engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from agentenv.core.reply_check import impossible
from agentenv.engine.fold import fold
from agentenv.engine.visibility import Decode, Spell, visibility
from agentenv.errors import AgentEnvError
from agentenv.records.axes import (
    BudgetKind,
    CompactionOutcome,
    Purpose,
    Scoring,
    StopReason,
    VisibilityLevel,
)
from agentenv.records.compaction import Compaction
from agentenv.records.episode import EpisodeRecord, StepRecord
from agentenv.records.facts import Fact
from agentenv.records.tokens import unpack_ids, unpack_logprobs

_NEVER_OVERSPENT = (BudgetKind.TURNS, BudgetKind.SAMPLED_TOKENS, BudgetKind.TOOL_CALLS, BudgetKind.CONTEXT_TOKENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One breach of one law."""

    law: int
    where: str
    """Episode, attempt and, where it applies, turn or segment."""
    text: str


def audit(facts: Sequence[Fact]) -> tuple[EpisodeRecord | None, list[Finding]]:
    """Replay an attempt and check its record.

    Returns:
        The record, or None where the facts contradict one another (which is itself a finding), and the findings.
    """
    try:
        record = fold(facts)
    except AgentEnvError as error:
        return None, [Finding(law=1, where="replay", text=str(error))]
    place = f"{record.episode_id} attempt {record.attempt}"
    return record, [
        Finding(law=law, where=f"{place}{where}", text=text) for law, check in _CHECKS for where, text in check(record)
    ]


def audit_visibility(record: EpisodeRecord, decode: Decode, spell: Spell) -> list[Finding]:
    """Decide anew, from the recorded prompt ids alone, which rules each call's prompt showed (law 8).

    Args:
        record: Of `audit`.
        decode: Of the tokenizer the ids belong to.
        spell: Its ``decode(encode_plain(text))``.
    """
    findings: list[Finding] = []
    for step in record.steps:
        prompt = unpack_ids(record.segments[step.segment].token_ids)[: step.prompt_length]
        found = {
            entry.constraint_id: entry.level for entry in visibility(record.constraints, prompt, decode, spell=spell)
        }
        for entry in step.visibility:
            if found[entry.constraint_id] is not entry.level:
                where = f"{record.episode_id} attempt {record.attempt} turn {step.turn}"
                text = f"rule {entry.constraint_id} is recorded as {entry.level}, its prompt ids say otherwise"
                findings.append(Finding(law=8, where=where, text=text))
    return findings


Found = Iterator[tuple[str, str]]


def _prefix(record: EpisodeRecord) -> Found:
    for step in record.steps:
        segment = record.segments[step.segment]
        p, n = step.prompt_length, step.completion_length
        if segment.token_ids[4 * p : 4 * (p + n)] != step.sampled.completion_ids:
            yield f" turn {step.turn}", "the sampled ids are not the segment's ids at their place"
        if any(segment.sampled_mask[k] != 1 for k in range(p, p + n)):
            yield f" turn {step.turn}", "the sampled mask does not cover the sampled ids"
    for before, after in zip(record.steps, record.steps[1:], strict=False):
        if before.segment == after.segment and after.prompt_length < before.prompt_length + before.completion_length:
            yield f" turn {after.turn}", "its prompt is shorter than the previous prompt and completion"


def _mask(record: EpisodeRecord) -> Found:
    for segment in record.segments:
        logprobs = unpack_logprobs(segment.logprobs)
        if not len(logprobs) == len(segment.sampled_mask) == len(segment.token_ids) // 4:
            yield f" segment {segment.index}", "ids, mask and log-probs differ in length"
        stray = [k for k, value in enumerate(logprobs) if value is not None and not segment.sampled_mask[k]]
        if stray:
            yield f" segment {segment.index}", f"position {stray[0]} has a log-prob and was not sampled"
        sampled = sum(s.completion_length for s in record.steps if s.segment == segment.index)
        if sum(segment.sampled_mask) != sampled:
            yield f" segment {segment.index}", f"the mask marks {sum(segment.sampled_mask)} ids, {sampled} were sampled"
        ids = unpack_ids(segment.token_ids)
        if ids and min(ids) < 0:
            yield f" segment {segment.index}", f"it has the id {min(ids)}; ids begin at 0"
    for step in record.steps:
        if (flaw := impossible(step.sampled)) is not None:
            yield f" turn {step.turn}", flaw


def _distribution(record: EpisodeRecord) -> Found:
    for step in record.steps:
        spans = [(s.start, s.end) for s in step.sampled.logprob_spans]
        if step.sampled.logprobs and not _tiles(spans, step.completion_length):
            yield f" turn {step.turn}", f"log-prob spans {spans} do not tile [0, {step.completion_length})"
        versions = [(s.start, s.end) for s in step.sampled.version_spans]
        if step.completion_length and not _tiles(versions, step.completion_length):
            yield f" turn {step.turn}", f"weight-version spans {versions} do not tile [0, {step.completion_length})"


def _tiles(spans: Sequence[tuple[int, int]], n: int) -> bool:
    at = 0
    for start, end in spans:
        if start != at or end <= start:
            return False
        at = end
    return at == n


def _ending(record: EpisodeRecord) -> Found:
    if record.ended and record.terminated == record.truncated:
        yield "", f"ended with terminated={record.terminated} and truncated={record.truncated}"
    if record.reason is not None and record.terminated != record.reason.terminated:
        yield "", f"{record.reason} cannot have terminated={record.terminated}"
    if record.ended and record.steps and record.final_prompt_ids is None:
        yield "", "ended without its last observation as tokens"
    for step in record.steps[:-1]:
        if step.terminated or step.truncated or step.reason is not None:
            yield f" turn {step.turn}", "has an ending and is not the last step"
    named = record.reason in (StopReason.TASK_BUDGET, StopReason.COLLECTOR_BUDGET)
    if named and record.budget not in {state.name for state in record.budgets}:
        yield "", f"{record.reason} names the budget {record.budget!r}, which the episode does not have"


def _axes(record: EpisodeRecord) -> Found:
    scored = record.scoring is Scoring.SCORED
    if not scored and record.rewards:
        yield "", f"has reward components and scoring {record.scoring}"
    if scored and any(part.value is None and part.status is Scoring.SCORED for part in record.rewards):
        yield "", "a scored component has no value"
    if (record.reason is StopReason.FAULT) and record.fault is None:
        yield "", "ended by a fault that nobody describes"


def _budget(record: EpisodeRecord) -> Found:
    for step in record.steps:
        if step.completion_length > step.sampling.max_tokens:
            yield f" turn {step.turn}", f"{step.completion_length} tokens where {step.sampling.max_tokens} were allowed"
        for state in step.budgets:
            if state.kind in _NEVER_OVERSPENT and state.remaining < 0:
                yield f" turn {step.turn}", f"{state.name} is overspent: {state.spent} of {state.limit}"
    totals = {
        BudgetKind.TURNS: len(record.steps),
        BudgetKind.SAMPLED_TOKENS: sum(step.completion_length for step in record.steps),
    }
    for state in record.budgets:
        if state.kind in totals and state.spent != totals[state.kind]:
            yield "", f"{state.name} says {state.spent} spent, the steps say {totals[state.kind]}"


def _compaction(record: EpisodeRecord) -> Found:
    for step, compaction in _compactions(record):
        where = f" {compaction.id}"
        if compaction.outcome is CompactionOutcome.FAILED:
            if not compaction.reason:
                yield where, "failed without a reason"
            continue
        after = compaction.tokens_after
        if after is None or after > compaction.budget_tokens or after >= compaction.tokens_before:
            yield where, f"{compaction.tokens_before} to {after} tokens within {compaction.budget_tokens} does not fit"
        if step is not None and step.purpose is Purpose.ACT and step.compactions[-1] is compaction:
            began = record.segments[step.segment].reason
            if began != f"compaction {compaction.id}" and not record.segments[step.segment].reason.startswith("summ"):
                yield where, f"was applied and the next prompt's segment began for {began!r}"


def _compactions(record: EpisodeRecord) -> Iterator[tuple[StepRecord | None, Compaction]]:
    for step in record.steps:
        for compaction in step.compactions:
            yield step, compaction
    for compaction in record.failed_compactions:
        yield None, compaction


def _visibility(record: EpisodeRecord) -> Found:
    rules = {rule.id for rule in record.constraints}
    for step in record.steps:
        if step.purpose is not Purpose.ACT:
            continue
        if {entry.constraint_id for entry in step.visibility} != rules:
            yield f" turn {step.turn}", "does not say of every live rule whether it was visible"
        for entry in step.visibility:
            placed = entry.token_start is not None and entry.token_end is not None
            if placed != (entry.level is not VisibilityLevel.ABSENT):
                yield f" turn {step.turn}", f"rule {entry.constraint_id} is {entry.level} with no place in the prompt"


def _effects(record: EpisodeRecord) -> Found:
    for step in record.steps:
        seen = {entry.constraint_id: entry for entry in step.visibility}
        for breach in step.breaches:
            where = f" turn {step.turn}"
            if not breach.evidence:
                yield where, f"rule {breach.constraint_id} was broken without evidence"
            entry = seen.get(breach.constraint_id)
            if entry is None or breach.visible != (entry.level is not VisibilityLevel.ABSENT):
                yield where, f"the breach of {breach.constraint_id} contradicts the visibility of its call"


_CHECKS: tuple[tuple[int, Callable[[EpisodeRecord], Found]], ...] = (
    (1, _prefix),
    (2, _mask),
    (3, _distribution),
    (4, _ending),
    (5, _axes),
    (6, _budget),
    (7, _compaction),
    (8, _visibility),
    (9, _effects),
)
