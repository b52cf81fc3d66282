"""One reply of llama.cpp, sampled in slices so that it can be abandoned and loses no id.

What this module owns: how a call becomes a series of engine calls, and how ids and log-probs are brought together.

Why slices: a streamed call of llama.cpp can be stopped but leaves out the ids of tokens that end inside a character;
a call that is not streamed has every id but cannot be stopped. So a reply is sampled `SLICE` tokens at a time without
streaming, each slice going on from the ids so far. The slot keeps what it has read, so nothing is read twice; every
token is drawn from the same distribution as in one go. Between slices, and between steps of reading the prompt, an
abandoned call ends.
"""

from __future__ import annotations

import struct
import threading
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentenv.errors import PolicyServerFault
from agentenv.policies.llamacpp_engine import Answer, LlamaEngine
from agentenv.records.axes import Finish
from agentenv.records.tokens import SamplingParams

SLICE = 16
"""Tokens sampled between two looks at whether anybody still wants the reply."""
_ENGINE_PICKS_A_SEED = 0xFFFFFFFF
"""This one value asks llama.cpp for a random seed."""
_FORCED = 1000.0
"""A logit bias after which nothing else can be sampled."""
_FEW_CANDIDATES = 1000


class Abandoned(Exception):
    """Nobody wants the reply any more; not an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call, as the worker thread needs it."""

    prompt: list[int]
    sampling: SamplingParams
    max_tokens: int
    """At least 1; prompt and reply fit the window."""
    seed: int
    slot: int
    vocab_size: int
    read_step: int
    """Prompts with more unread tokens than this are read in steps before the first slice."""
    n_held: int
    """Leading prompt tokens that the slot holds already, as far as we know."""
    score_with: int | None
    """A token whose text is empty, such as the end token: used to read log-probs the engine left out. None: leave
    them null."""
    abandoned: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True, kw_only=True)
class Draft:
    """What the engine gave, id for id."""

    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float | None] = field(default_factory=list["float | None"])
    finish: Finish = Finish.LENGTH
    stop_token_id: int | None = None
    cached_tokens: int = 0
    notes: list[str] = field(default_factory=list[str])


def sample(engine: LlamaEngine, call: Call) -> Draft:
    """Sample one reply. Blocks.

    Raises:
        Abandoned: ``call.abandoned`` was set; the engine works on nothing of this call any more.
        PromptTooLong, PolicyServerFault: As `LlamaEngine.complete`.
    """
    draft = Draft()
    n_read = _read(engine, call)
    over = False
    while not over:
        _unless_abandoned(call)
        answer = engine.complete(_slice_body(call, draft.ids))
        if not draft.ids:
            draft.cached_tokens = answer.n_cached if n_read is None else n_read
        over = _take(answer, call, draft)
    if call.score_with is not None and None in draft.logprobs:
        _score_the_rest(engine, call, draft)
    return draft


def slice_seed(seed: int, at: int) -> int:
    """Give the seed of the slice that begins at completion index ``at``.

    For equal ``at`` distinct seeds stay distinct: a CRC over four changing bytes is a bijection.
    """
    derived = zlib.crc32(struct.pack("<II", seed & 0xFFFFFFFF, at))
    return derived if derived != _ENGINE_PICKS_A_SEED else derived - 1


def sampling_body(sampling: SamplingParams, n_prompt_and_reply: int) -> dict[str, Any]:
    """Write every sampling field in llama.cpp's names, filters in vLLM's order.

    llama.cpp applies the temperature last by default, so that the same ``top_p`` would keep other tokens than in
    vLLM; here it comes first, as there. Penalties look at the whole of prompt and reply. (vLLM's presence and
    frequency penalties look at the reply only: with those the two engines differ.)
    """
    return {
        "samplers": ["penalties", "temperature", "min_p", "top_k", "top_p"],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": max(sampling.top_k, 0),
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repeat_last_n": n_prompt_and_reply,
    }


def _read(engine: LlamaEngine, call: Call) -> int | None:
    """Read a long prompt, all but its last token, in steps that can be abandoned between."""
    if len(call.prompt) - call.n_held <= call.read_step:
        return None
    _unless_abandoned(call)
    body = {"prompt": call.prompt[:-1], "id_slot": call.slot, "cache_prompt": True, "temperature": 0.0}
    n_held = engine.read_prompt(body, call.abandoned)
    _unless_abandoned(call)
    return n_held


def _slice_body(call: Call, ids: list[int]) -> dict[str, Any]:
    return {
        **sampling_body(call.sampling, len(call.prompt) + call.max_tokens),
        "prompt": call.prompt + ids,
        "n_predict": min(SLICE, call.max_tokens - len(ids)),
        "n_probs": 1,
        "seed": slice_seed(call.seed, len(ids)),
        "id_slot": call.slot,
        "cache_prompt": True,
    }


def _take(answer: Answer, call: Call, draft: Draft) -> bool:
    """Add one slice to the draft; say whether the reply is over."""
    n_sent = len(call.prompt) + len(draft.ids)
    if answer.n_prompt != n_sent:
        raise PolicyServerFault(f"llama.cpp read a prompt of {answer.n_prompt} tokens where {n_sent} were sent.")
    if not answer.ids:
        raise PolicyServerFault("llama.cpp sampled nothing where at least one token was asked for.")
    logprobs = align(answer.ids, answer.scored)
    stop_ids = call.sampling.stop_token_ids
    end = next((i for i, token in enumerate(answer.ids) if token in stop_ids), len(answer.ids) - 1) + 1
    draft.ids += answer.ids[:end]
    draft.logprobs += logprobs[:end]
    if dropped := len(answer.ids) - end:
        draft.notes.append(f"{dropped} ids that the engine sampled after the stop token were dropped")
    last = draft.ids[-1]
    if answer.stop not in ("eos", "limit"):
        raise PolicyServerFault(f"llama.cpp ended a slice with {answer.stop!r}; expected 'eos' or 'limit'.")
    if last in stop_ids or (answer.stop == "eos" and not dropped):
        draft.finish, draft.stop_token_id = Finish.STOP, last
        return True
    return answer.window_full or len(draft.ids) >= call.max_tokens


def align(ids: Sequence[int], scored: Sequence[tuple[int, float | None]]) -> list[float | None]:
    """Put each log-prob beside the id it belongs to; null where the engine gave none or where it is not certain.

    llama.cpp reports no log-prob for a token that ends inside a character, so ``scored`` is a subsequence of ``ids``.
    The earliest and the latest way to fit it in agree exactly where there is only one way.

    Returns:
        (C,) log-probs, None where unknown.

    Raises:
        PolicyServerFault: It is no subsequence: a log-prob names a token that was not sampled.
    """
    if len(ids) == len(scored) and all(token == named for token, (named, _) in zip(ids, scored, strict=True)):
        return [value for _, value in scored]
    earliest = _fit(ids, [token for token, _ in scored])
    latest = [len(ids) - 1 - at for at in _fit(ids[::-1], [token for token, _ in reversed(scored)])][::-1]
    aligned: list[float | None] = [None] * len(ids)
    for first, last, (_, value) in zip(earliest, latest, scored, strict=True):
        if first == last:
            aligned[first] = value
    return aligned


def _fit(ids: Sequence[int], named: Sequence[int]) -> list[int]:
    places: list[int] = []
    at = 0
    for token in named:
        while at < len(ids) and ids[at] != token:
            at += 1
        if at == len(ids):
            raise PolicyServerFault(f"llama.cpp gave a log-prob of id {token}, which it did not sample there.")
        places.append(at)
        at += 1
    return places


def _score_the_rest(engine: LlamaEngine, call: Call, draft: Draft) -> None:
    """Read the log-probs that the engine left out a second time."""
    missing = [at for at, value in enumerate(draft.logprobs) if value is None]
    for at in missing:
        _unless_abandoned(call)
        draft.logprobs[at] = second_reading(engine, call, call.prompt + draft.ids[:at], draft.ids[at])
    n_read = sum(draft.logprobs[at] is not None for at in missing)
    draft.notes.append(f"{n_read} log-probs of tokens that end inside a character come from a second reading")


def second_reading(engine: LlamaEngine, call: Call, prompt: list[int], token: int) -> float | None:
    """Read the log-prob of ``token`` after ``prompt`` among the candidates of a call that keeps nothing sampled.

    The call is made to sample a token with an empty text, which always ends on a whole character; its candidates are
    the model's own distribution at that position, before the bias that forces it.
    """
    for n_candidates in (_FEW_CANDIDATES, call.vocab_size):
        answer = engine.complete(
            {
                "prompt": prompt,
                "n_predict": 1,
                "n_probs": n_candidates,
                "temperature": 0.0,
                "logit_bias": [[call.score_with, _FORCED]],
                "id_slot": call.slot,
                "cache_prompt": True,
            }
        )
        value = answer.candidates[0].get(token) if answer.candidates else None
        if value is not None:
            return value
    return None


def _unless_abandoned(call: Call) -> None:
    if call.abandoned.is_set():
        raise Abandoned


def common_prefix(one: array[int], other: array[int]) -> int:
    """Count the leading ids that two sequences share."""
    import numpy as np

    n = min(len(one), len(other))
    if n == 0:
        return 0
    unequal = np.frombuffer(one, dtype=np.int32)[:n] != np.frombuffer(other, dtype=np.int32)[:n]
    return int(unequal.argmax()) if unequal.any() else n
