"""The replies of one recorded attempt, with the prompt that each was sampled after.

What this module owns: reading prompts and replies out of facts, and cutting a reply short. It does no I/O.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from agentenv.errors import LawBreach
from agentenv.records.facts import Fact, PromptRendered, TurnSampled
from agentenv.records.tokens import LogprobSpan, Sampled, VersionSpan

_Span = TypeVar("_Span", LogprobSpan, VersionSpan)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedReply:
    """One reply and the prompt it was sampled after."""

    segment: array[int]
    """Ids of the whole segment; shared between its replies."""
    prompt_length: int
    """P: the prompt is ``segment[:P]``."""
    turn: TurnSampled

    def first_difference(self, prompt: Sequence[int]) -> int | None:
        """Give the first position at which ``prompt`` is not the recorded one; None if they are equal."""
        recorded = self.segment[: self.prompt_length]
        if recorded == prompt:
            return None
        shorter = min(len(recorded), len(prompt))
        return next((at for at in range(shorter) if recorded[at] != prompt[at]), shorter)


def recorded_replies(facts: Iterable[Fact]) -> dict[int, RecordedReply]:
    """Read the replies of one attempt, by turn.

    Raises:
        LawBreach: A prompt has another length than its fact says, or a reply has no prompt.
    """
    replies: dict[int, RecordedReply] = {}
    segment: array[int] | None = None
    prompt_length = 0
    for fact in facts:
        if isinstance(fact, PromptRendered):
            if fact.new_segment_reason is not None or segment is None:
                segment = array("i")
            segment.frombytes(fact.appended_ids)
            prompt_length = fact.prompt_length
            if len(segment) != prompt_length:
                raise LawBreach(
                    f"segment {fact.segment} has {len(segment)} ids where its prompt is recorded as {prompt_length}"
                )
        elif isinstance(fact, TurnSampled):
            if segment is None:
                raise LawBreach(f"turn {fact.turn} was sampled before any prompt was rendered")
            replies[fact.turn] = RecordedReply(segment=segment, prompt_length=prompt_length, turn=fact)
            segment.frombytes(fact.sampled.completion_ids)
    return replies


def cut(sampled: Sampled, n: int) -> Sampled:
    """Give the first ``n`` ids of a reply with what belongs to them: what a smaller ``max_tokens`` would have given.

    Text is dropped where ids are: which part of it belongs to them is not known.
    """
    if n >= sampled.n:
        return sampled
    logprob_spans: tuple[LogprobSpan, ...] = _cut_spans(sampled.logprob_spans, n)
    version_spans: tuple[VersionSpan, ...] = _cut_spans(sampled.version_spans, n)
    return replace(
        sampled,
        completion_ids=sampled.completion_ids[: 4 * n],
        logprobs=sampled.logprobs[: 4 * n],
        logprob_spans=logprob_spans,
        version_spans=version_spans,
        text=None,
        notes=(*sampled.notes, f"replayed up to max_tokens: {n} of {sampled.n} recorded ids"),
    )


def _cut_spans(spans: tuple[_Span, ...], n: int) -> tuple[_Span, ...]:
    return tuple(replace(span, end=min(span.end, n)) for span in spans if span.start < n)
