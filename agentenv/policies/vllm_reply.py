"""Judging one answer of the engine: what is true of it, what is unknown, and what is a fault.

What this module owns: the rules by which an answer becomes part of a record (laws 1 to 3). It is pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple, cast

import msgspec

from agentenv.errors import PolicyServerFault
from agentenv.policies.vllm_wire import WireReply
from agentenv.records.axes import Distribution, Evidence, Finish
from agentenv.records.tokens import LogprobSpan, Sampled, SamplingParams, VersionSpan, pack_ids, pack_logprobs

_MISSING = -9000.0
"""vLLM writes -9999.0 for a log-prob that is missing, NaN or minus infinity."""
_TOLERANCE = 1e-6
"""A log-prob this little above 0 is rounding; further above it is no log-prob."""
_LOWEST_TEMPERATURE = 0.01
"""vLLM silently raises temperatures between 0 and this (``vllm/sampling_params.py``)."""
_FINISHES = {finish.value: finish for finish in Finish}


class Part(NamedTuple):
    """One judged answer: a whole reply, or the part of one that an abort cut off."""

    ids: array[int]
    """(C,) sampled ids."""
    logprobs: list[float] | list[float | None]
    """(C,), or empty where the engine gave none."""
    versions: tuple[VersionSpan, ...]
    """Tiles [0, C)."""
    finish: Finish
    stop_token_id: int | None = None
    cached_tokens: int | None = None
    notes: tuple[str, ...] = ()


def judge(wire: WireReply, *, prompt_json: bytes, max_tokens: int, vocab_size: int | None) -> Part:
    """Check one answer against what was asked.

    Args:
        wire: The answer.
        prompt_json: The prompt ids as sent.
        max_tokens: The most that was asked for.
        vocab_size: One past the highest id; None if no tokenizer is at hand.

    Raises:
        PolicyServerFault: The answer breaks token fidelity: another prompt, more ids than asked for, an id outside
            the vocabulary, fewer log-probs than ids, a log-prob of another token, one above 0.
    """
    if wire.prompt_echo is not None and wire.prompt_echo != prompt_json:
        _compare_prompts(prompt_json, wire.prompt_echo)
    n = len(wire.ids)
    if n > max_tokens:
        raise PolicyServerFault(f"The engine sampled {n} tokens where at most {max_tokens} were asked for.")
    if n and not 0 <= min(wire.ids) <= max(wire.ids) < (vocab_size or 2**31):
        raise PolicyServerFault(
            f"The engine sampled the ids {_outside(wire.ids, vocab_size)} outside the vocabulary of {vocab_size}: "
            "its model is not the one the tokenizer belongs to."
        )
    finish = _FINISHES.get(wire.finish or "")
    if finish is None:
        raise PolicyServerFault(f"The engine ended a reply with {wire.finish!r}; expected one of {sorted(_FINISHES)}.")
    logprobs, notes = _checked_logprobs(wire)
    versions, version_notes = _checked_versions(wire.versions, n)
    return Part(
        ids=array("i", wire.ids),
        logprobs=logprobs,
        versions=versions,
        finish=finish,
        stop_token_id=_stop_token(finish, wire),
        cached_tokens=wire.cached_tokens,
        notes=notes + version_notes,
    )


def assemble(
    parts: Sequence[Part],
    *,
    sampling: SamplingParams,
    known: Distribution,
    evidence: Evidence,
    notes: tuple[str, ...] = (),
) -> Sampled:
    """Join the parts of one reply; ids, log-probs and version spans concatenate.

    Args:
        parts: One, or several if the engine aborted the reply and it was resumed.
        sampling: As sent; decides what ``known`` means for this reply.
        known: Which distribution this server's log-probs describe.
        evidence: How that is known.
        notes: Further remarks.
    """
    if len(parts) == 1:
        part = parts[0]
        ids, logprobs, versions, own = part.ids, part.logprobs, part.versions, part.notes
    else:
        ids, logprobs, versions, own = _joined(parts)
    spans, span_notes = logprob_spans(len(ids) if logprobs else 0, sampling=sampling, known=known, evidence=evidence)
    return Sampled(
        completion_ids=pack_ids(ids),
        logprobs=pack_logprobs(logprobs),
        logprob_spans=spans,
        version_spans=versions,
        notes=own + span_notes + notes,
    )


def logprob_spans(
    n: int, *, sampling: SamplingParams, known: Distribution, evidence: Evidence
) -> tuple[tuple[LogprobSpan, ...], tuple[str, ...]]:
    """Say which distribution ``n`` log-probs of one reply describe, given what the server's describe in general.

    Processed log-probs of a greedy reply are not tempered: without penalties they are the model's own, with
    penalties they are neither.
    """
    notes: tuple[str, ...] = ()
    if known is Distribution.SAMPLING and sampling.temperature < _LOWEST_TEMPERATURE:
        greedy = sampling.temperature == 0
        known = Distribution.MODEL if greedy and not _penalised(sampling) else Distribution.UNKNOWN
        what = "a greedy reply's log-probs are not tempered" if greedy else "the engine raises this temperature to 0.01"
        notes = (f"{what}: they describe the distribution {known.value!r}",)
    if known is Distribution.UNKNOWN:
        evidence = Evidence.UNKNOWN
    if n == 0:
        return (), notes
    return (LogprobSpan(start=0, end=n, distribution=known, evidence=evidence),), notes


def _penalised(sampling: SamplingParams) -> bool:
    return (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) != (1.0, 0.0, 0.0)


def _compare_prompts(sent_json: bytes, echo_json: bytes) -> None:
    sent: list[int] = msgspec.json.decode(sent_json)
    echo: object = msgspec.json.decode(echo_json)
    if echo == sent:
        return
    used = echo if isinstance(echo, list) else []
    at = next((i for i, (a, b) in enumerate(zip(sent, used, strict=False)) if a != b), min(len(sent), len(used)))
    raise PolicyServerFault(
        f"The engine did not use the prompt that was sent: {len(sent)} ids sent, {len(used)} used, the first "
        f"difference at position {at} ({sent[at : at + 1]} sent, {used[at : at + 1]} used). Switch off whatever "
        "rewrites prompts in the engine (truncation, added special tokens)."
    )


def _outside(ids: list[int], vocab_size: int | None) -> list[int]:
    return [token for token in ids if not 0 <= token < (vocab_size or 2**31)][:5]


def _stop_token(finish: Finish, wire: WireReply) -> int | None:
    if finish is not Finish.STOP or not wire.ids:
        return None
    stop = wire.stop_reason
    if isinstance(stop, str) or (stop is not None and stop != wire.ids[-1]):
        return None
    return wire.ids[-1]


def _checked_logprobs(wire: WireReply) -> tuple[list[float] | list[float | None], tuple[str, ...]]:
    n, given = len(wire.ids), wire.logprobs
    if given is None or len(given) != n:
        if not n and not given:
            return [], ()
        raise PolicyServerFault(
            f"The engine sampled {n} ids and gave {0 if given is None else len(given)} log-probs for them; the record "
            "needs one for each. Is the engine started without log-probs, or does a proxy drop them?"
        )
    named = wire.logprob_ids
    if named and named != wire.ids:
        at = next((i for i, (a, b) in enumerate(zip(named, wire.ids, strict=False)) if a is not None and a != b), None)
        if at is not None or len(named) != n:
            raise PolicyServerFault(
                f"The engine's log-prob at position {at} is of another token than the one it sampled there."
            )
    if None not in given:
        values = cast("list[float]", given)
        if n == 0 or (min(values) > _MISSING and max(values) <= 0.0):
            return values, ()
    return _mended(given)


def _mended(given: list[float | None]) -> tuple[list[float | None], tuple[str, ...]]:
    mended: list[float | None] = []
    missing = clamped = 0
    for at, value in enumerate(given):
        if value is None or value <= _MISSING:
            missing += 1
            mended.append(None)
        elif value <= 0.0:
            mended.append(value)
        elif value <= _TOLERANCE:
            clamped += 1
            mended.append(0.0)
        else:
            raise PolicyServerFault(
                f"The engine gave the log-prob {value:g} at position {at}; none can be above 0. Is it started with "
                "--logprobs-mode raw_logits or processed_logits? Use processed_logprobs."
            )
    notes: list[str] = []
    if missing:
        notes.append(f"{missing} of {len(given)} log-probs were missing, NaN or -inf in the engine's answer: null")
    if clamped:
        notes.append(f"{clamped} of {len(given)} log-probs were above 0 by at most {_TOLERANCE:g}: set to 0")
    return mended, tuple(notes)


def _checked_versions(
    given: list[tuple[str, int, int]] | None, n: int
) -> tuple[tuple[VersionSpan, ...], tuple[str, ...]]:
    if n == 0:
        return (), ()
    if given is None:
        return (VersionSpan(start=0, end=n, version=None),), ()
    bounds = [0, *(end for _, _, end in given)]
    tiles = bounds[-1] == n and all(start == bound < end for bound, (_, start, end) in zip(bounds, given, strict=False))
    if not tiles:
        unknown = (VersionSpan(start=0, end=n, version=None),)
        return unknown, (f"the engine's weight spans {given[:4]} do not cover its {n} tokens: version unknown",)
    return tuple([VersionSpan(start=start, end=end, version=label) for label, start, end in given]), ()


def _joined(
    parts: Sequence[Part],
) -> tuple[array[int], list[float | None], tuple[VersionSpan, ...], tuple[str, ...]]:
    ids: array[int] = array("i")
    logprobs: list[float | None] = []
    versions: list[VersionSpan] = []
    notes: list[str] = []
    for part in parts:
        offset = len(ids)
        for span in part.versions:
            start, end = offset + span.start, offset + span.end
            if versions and versions[-1].version == span.version:
                start = versions.pop().start
            versions.append(VersionSpan(start=start, end=end, version=span.version))
        ids += part.ids
        logprobs += part.logprobs
        notes += part.notes
    return ids, logprobs, tuple(versions), tuple(notes)
