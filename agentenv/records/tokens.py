"""Packed token arrays, and the spans that say what the numbers over them mean.

At rest every token array is bytes: ids as little-endian int32, log-probs as little-endian float32 in which the
quiet NaN stands for null (a log-prob that is missing is null, never 0.0). `unpack_logprobs` gives ``None`` back, so
no NaN leaves this module.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agentenv.records.axes import Distribution, Evidence

Ids = array  # array("i"): what travels in memory; `pack_ids` makes it what rests

_LITTLE = sys.byteorder == "little"
_NAN = math.nan


def pack_ids(ids: Iterable[int]) -> bytes:
    """Pack token ids as little-endian int32.

    Raises:
        OverflowError: An id does not fit int32.
    """
    packed = ids if isinstance(ids, array) and ids.typecode == "i" else array("i", ids)
    if not _LITTLE:
        packed = array("i", packed)
        packed.byteswap()
    return packed.tobytes()


def unpack_ids(packed: bytes) -> array[int]:
    """Give the ids back as ``array("i")`` of ``len(packed) // 4`` items."""
    ids = array("i")
    ids.frombytes(packed)
    if not _LITTLE:
        ids.byteswap()
    return ids


def pack_logprobs(logprobs: Sequence[float | None]) -> bytes:
    """Pack natural-log probabilities as little-endian float32, null as NaN."""
    packed = array("f", [_NAN if value is None else value for value in logprobs])
    if not _LITTLE:
        packed.byteswap()
    return packed.tobytes()


def unpack_logprobs(packed: bytes) -> list[float | None]:
    """Give the log-probs back, NaN as ``None``."""
    values = array("f")
    values.frombytes(packed)
    if not _LITTLE:
        values.byteswap()
    return [None if math.isnan(value) else value for value in values]


def n_tokens(packed: bytes) -> int:
    """Number of items in a packed array."""
    return len(packed) // 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one reply is sampled; every field is sent on every request, because servers' defaults are not neutral."""

    temperature: float = 1.0
    """0 means greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 means no cut."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_tokens: int = 512
    """Tokens of one reply, before the budgets clamp it."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end a reply; the one sampled is part of the completion ids."""

    @property
    def filtered(self) -> bool:
        """Whether anything besides temperature shapes the distribution (a filter or a penalty)."""
        return (
            self.top_p < 1.0
            or self.top_k > 0
            or self.min_p > 0.0
            or self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogprobSpan:
    """Which distribution the log-probs of one stretch of a completion describe (law 3)."""

    start: int
    """First completion index, 0-based."""
    end: int
    """One past the last."""
    distribution: Distribution
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpan:
    """Which weights sampled one stretch of a completion."""

    start: int
    end: int
    version: str | None
    """The engine's label, or None where it gives none: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What the policy emitted in one call.

    Invariant: ``logprobs`` is empty or as long as ``completion_ids``; both kinds of span tile ``[0, n)``.
    """

    completion_ids: bytes
    """(C,) int32: exactly what was sampled, the stop token included if it was sampled. Never re-tokenised."""
    logprobs: bytes = b""
    """(C,) float32, natural log, own-token alignment; empty when the engine gave none."""
    logprob_spans: tuple[LogprobSpan, ...] = ()
    version_spans: tuple[VersionSpan, ...] = ()
    text: str | None = None
    """Only from a policy that answers text instead of ids: then the ids are ours and are not trainable."""
    notes: tuple[str, ...] = field(default=())
    """What the client had to change or could not know, such as nulls in place of the engine's -9999."""

    @property
    def n(self) -> int:
        """Number of completion tokens, C."""
        return len(self.completion_ids) // 4
