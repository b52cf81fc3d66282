"""What a caller hands to ``step``, made a reply: ids with their log-probs, or plain text."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentenv.core.policy import Reply, SampleRequest
from agentenv.core.renderer import Renderer
from agentenv.errors import UsageError
from agentenv.records.axes import Distribution, Evidence, Finish
from agentenv.records.tokens import LogprobSpan, Sampled, VersionSpan, pack_ids, pack_logprobs

Action = Mapping[str, Any] | str
"""``{"token_ids": (C,) ints}`` with, as far as they are known, ``logprobs`` (C,), ``distribution`` (``model``,
``sampling`` or ``unknown``) and ``weight_version``; or the text of a reply."""

_KEYS = ("token_ids", "logprobs", "distribution", "weight_version")


def reply_of(action: Action, request: SampleRequest, renderer: Renderer) -> Reply:
    """Make the reply that an action stands for.

    Ids beyond ``request.sampling.max_tokens`` are cut, as an engine would have stopped there, with a note. Text is
    encoded by us, so it is marked as text and is not trainable.

    Raises:
        UsageError: Not of the form of `Action`, an id out of the vocabulary, or fewer log-probs than ids.
    """
    if isinstance(action, str):
        return _text_reply(action, request, renderer)
    if not isinstance(action, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types
        raise UsageError(f"an action is text or a mapping with token_ids, got {action!r:.80}")
    if "token_ids" not in action or any(key not in _KEYS for key in action):
        raise UsageError(
            f"an action is text or a mapping with token_ids (and {', '.join(_KEYS[1:])}), got {sorted(action)}"
        )
    ids = _ids(action["token_ids"], renderer.tokenizer.vocab_size)
    logprobs = _logprobs(action.get("logprobs"), len(ids))
    notes: tuple[str, ...] = ()
    allowed = request.sampling.max_tokens
    if len(ids) > allowed:
        notes = (f"cut to the {allowed} tokens allowed; {len(ids)} were given",)
        ids, logprobs = ids[:allowed], logprobs[:allowed]
    sampled = _sampled(ids, logprobs, action, notes)
    return Reply(sampled=sampled, finish=_finish(ids, request, cut=bool(notes)), stop_token_id=_stop(ids, request))


def _text_reply(text: str, request: SampleRequest, renderer: Renderer) -> Reply:
    ids = renderer.tokenizer.encode(text)
    ids.extend(renderer.stop_token_ids[:1])
    cut = len(ids) > request.sampling.max_tokens
    ids = ids[: request.sampling.max_tokens]
    sampled = Sampled(
        completion_ids=pack_ids(ids),
        version_spans=_spans_of_version(len(ids), None),
        text=text,
        notes=("given as text: the ids are the environment's",),
    )
    return Reply(sampled=sampled, finish=_finish(ids, request, cut=cut), stop_token_id=_stop(ids, request))


def _sampled(
    ids: array[int], logprobs: Sequence[float | None], action: Mapping[str, Any], notes: tuple[str, ...]
) -> Sampled:
    n = len(ids)
    try:
        distribution = Distribution(action.get("distribution") or "unknown")
    except ValueError as error:
        raise UsageError(f"distribution must be model, sampling or unknown, got {action['distribution']!r}") from error
    known = distribution is not Distribution.UNKNOWN
    span = LogprobSpan(
        start=0, end=n, distribution=distribution, evidence=Evidence.DECLARED if known else Evidence.UNKNOWN
    )
    version = action.get("weight_version")
    return Sampled(
        completion_ids=pack_ids(ids),
        logprobs=pack_logprobs(logprobs) if logprobs else b"",
        logprob_spans=(span,) if logprobs and n else (),
        version_spans=_spans_of_version(n, None if version is None else str(version)),
        notes=notes,
    )


def _spans_of_version(n: int, version: str | None) -> tuple[VersionSpan, ...]:
    return (VersionSpan(start=0, end=n, version=version),) if n else ()


def _ids(given: Iterable[Any], vocab_size: int) -> array[int]:
    try:
        ids = array("i", [int(token) for token in given])
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"token_ids must be integers, got {given!r:.80}") from error
    bad = next((k for k, token in enumerate(ids) if not 0 <= token < vocab_size), None)
    if bad is not None:
        raise UsageError(f"token_ids[{bad}] is {ids[bad]}, outside the vocabulary of {vocab_size} ids")
    return ids


def _logprobs(given: Iterable[Any] | None, n: int) -> list[float | None]:
    if given is None:
        return []
    try:
        values = [None if value is None or math.isnan(value) else float(value) for value in given]
    except (TypeError, ValueError) as error:
        raise UsageError(f"logprobs must be numbers or None, got {given!r:.80}") from error
    if len(values) != n:
        raise UsageError(f"{n} token_ids but {len(values)} logprobs: give one for each, None where it is unknown")
    bad = next((k for k, value in enumerate(values) if value is not None and not -math.inf < value <= 0.0), None)
    if bad is not None:
        raise UsageError(f"logprobs[{bad}] is {values[bad]}: a natural log-probability is finite and at most 0")
    return values


def _stop(ids: array[int], request: SampleRequest) -> int | None:
    return ids[-1] if ids and ids[-1] in request.sampling.stop_token_ids else None


def _finish(ids: array[int], request: SampleRequest, *, cut: bool) -> Finish:
    """Say why the reply ended, as an engine would: a stop token, or the limit."""
    if cut or (len(ids) >= request.sampling.max_tokens and _stop(ids, request) is None):
        return Finish.LENGTH
    return Finish.STOP
