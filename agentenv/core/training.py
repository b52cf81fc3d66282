"""Which sampled tokens may be trained, and how much each training sequence of an episode weighs.

A token is trained where it was sampled, where its log-prob exists, and where that log-prob describes the distribution
it was sampled from (laws 2 and 3). Segments never share a sampled token: what an earlier segment sampled is prompt in
a later one. So a token is trained in one row only, and weights in proportion to trained tokens sum to 1 (law 10).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agentenv.core.policy import PolicyIdentity
from agentenv.records.axes import Distribution, StopReason
from agentenv.records.episode import EpisodeRecord, Segment, StepRecord
from agentenv.records.tokens import SamplingParams, n_tokens, unpack_logprobs


class Untrained(StrEnum):
    """Why a sampled token is not trained; the first that applies."""

    FAULT = "fault"
    """A fault ended the episode: its end is neither the task's nor the collector's, so no target fits it."""
    INTERRUPTED = "interrupted"
    """The attempt never ended."""
    TEXT_ONLY = "text_only"
    """The policy answered text; the ids are ours."""
    UNKNOWN_DISTRIBUTION = "unknown_distribution"
    """Nobody knows which distribution the log-prob describes."""
    OTHER_DISTRIBUTION = "other_distribution"
    """The log-prob is the model's own, but a temperature, filter or penalty made another one to sample from."""
    NO_LOGPROB = "no_logprob"
    """The engine gave no finite number."""


EXPLAINED: Mapping[Untrained, str] = {
    Untrained.FAULT: "in an episode that a fault ended",
    Untrained.INTERRUPTED: "in an attempt that never ended",
    Untrained.TEXT_ONLY: "of a policy that answers text only, so the ids are ours",
    Untrained.UNKNOWN_DISTRIBUTION: "log-probs of a distribution nobody knows, or none at all",
    Untrained.OTHER_DISTRIBUTION: (
        "log-probs of another distribution than was sampled from (temperature, filter or penalty)"
    ),
    Untrained.NO_LOGPROB: "no finite log-prob from the engine",
}
"""Every reason in plain words, to follow ``not trained: N sampled tokens``."""


class Caution(StrEnum):
    """What a trainer has to know about trained tokens."""

    FILTERED_SAMPLING = "filtered_sampling"
    """A filter or penalty shaped the distribution; a trainer that recomputes log-softmax over the whole vocabulary
    gets another normaliser, and no ratio recovers what a filter cut away."""
    GREEDY = "greedy"
    """Temperature 0: all but one token had probability 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTraining:
    """What may be trained of one segment."""

    mask: bytes
    """(T,) uint8, 1 where the token is trained."""
    untrained: dict[Untrained, int]
    """Sampled tokens that are not, by reason."""
    cautions: tuple[Caution, ...]

    @property
    def n_trained(self) -> int:
        """Number of trained tokens."""
        return self.mask.count(1)


def training_of(record: EpisodeRecord) -> tuple[SegmentTraining, ...]:
    """Decide for every segment of an attempt."""
    return tuple(_segment(record, segment) for segment in record.segments)


def nothing_trainable(identity: PolicyIdentity, sampling: SamplingParams) -> str | None:
    """Say why no token sampled with these settings can be trained, and what to do; None where some can."""
    if not identity.trainable:
        return (
            f"Nothing sampled here will be trainable: policy {identity.kind} does not give token ids and log-probs of "
            "an engine's own."
        )
    if identity.logprobs is Distribution.UNKNOWN:
        if identity.kind == "replay":
            return None  # a recorded run may mix distributions, each token with its own
        return (
            "Nothing sampled here will be trainable: nobody knows which distribution the engine's log-probs describe. "
            "If you know, say so with --logprobs model or --logprobs sampling."
        )
    if _of_span(identity.logprobs, sampling) is None:
        return None
    what = [f"temperature {sampling.temperature:g}"] if sampling.temperature != 1.0 else []
    what += ["a filter or penalty"] if sampling.filtered else []
    return (
        "Nothing sampled here will be trainable: the engine's log-probs describe the model's own distribution, and "
        f"{' with '.join(what)} samples from another. Use --temperature 1 without filters, or a server with "
        "--logprobs-mode processed_logprobs."
    )


def row_weights(record: EpisodeRecord) -> tuple[float, ...]:
    """Weigh the segments of an attempt: in proportion to trained tokens, 0 for a segment without any.

    Returns:
        One weight for each segment, which sum to 1. Empty if no token of the attempt is trained.

    Invariant: A sampled token is trained in one row only, and the row weights of one episode sum to 1.
    """
    return weights_of(training_of(record))


def weights_of(training: tuple[SegmentTraining, ...]) -> tuple[float, ...]:
    """Weigh segments that `training_of` has decided on; see `row_weights`."""
    counts = [segment.n_trained for segment in training]
    total = sum(counts)
    return tuple(count / total for count in counts) if total else ()


def _segment(record: EpisodeRecord, segment: Segment) -> SegmentTraining:
    mask = bytearray(n_tokens(segment.token_ids))
    untrained: dict[Untrained, int] = {}
    cautions: set[Caution] = set()
    for step in record.steps:
        if step.segment != segment.index or not step.completion_length:
            continue
        reasons = _reasons(record, step)
        trained = bytes([reason is None for reason in reasons])
        mask[step.prompt_length : step.prompt_length + step.completion_length] = trained
        for reason in reasons:
            if reason is not None:
                untrained[reason] = untrained.get(reason, 0) + 1
        if any(trained):
            cautions |= _cautions(step.sampling)
    return SegmentTraining(mask=bytes(mask), untrained=untrained, cautions=tuple(sorted(cautions)))


def _reasons(record: EpisodeRecord, step: StepRecord) -> list[Untrained | None]:
    """Say for each token of a completion why it is not trained; None where it is."""
    n = step.completion_length
    whole = _whole(record, step)
    if whole is not None:
        return [whole] * n
    reasons: list[Untrained | None] = [Untrained.UNKNOWN_DISTRIBUTION] * n  # where no span says anything
    for span in step.sampled.logprob_spans:
        reasons[span.start : span.end] = [_of_span(span.distribution, step.sampling)] * (span.end - span.start)
    logprobs = unpack_logprobs(step.sampled.logprobs) or [None] * n
    return [
        Untrained.NO_LOGPROB if reason is None and (logprob is None or math.isinf(logprob)) else reason
        for reason, logprob in zip(reasons, logprobs, strict=True)
    ]


def _whole(record: EpisodeRecord, step: StepRecord) -> Untrained | None:
    if record.reason is None:
        return Untrained.INTERRUPTED
    if record.reason is StopReason.FAULT:
        return Untrained.FAULT
    return Untrained.TEXT_ONLY if step.sampled.text is not None else None


def _of_span(distribution: Distribution, sampling: SamplingParams) -> Untrained | None:
    if distribution is Distribution.UNKNOWN:
        return Untrained.UNKNOWN_DISTRIBUTION
    if distribution is Distribution.MODEL and (sampling.temperature != 1.0 or sampling.filtered):
        return Untrained.OTHER_DISTRIBUTION
    return None


def _cautions(sampling: SamplingParams) -> set[Caution]:
    found: set[Caution] = set()
    if sampling.filtered:
        found.add(Caution.FILTERED_SAMPLING)
    if sampling.temperature == 0.0:
        found.add(Caution.GREEDY)
    return found
