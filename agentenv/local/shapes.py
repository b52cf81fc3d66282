"""The bodies of vLLM's routes as a local server speaks them: reading requests, writing answers.

What this module owns: field names, and refusing what would change the sampling and cannot be done here. It does no
I/O. Fields that change nothing about what is sampled are ignored, as vLLM ignores fields it does not know.

Source: vLLM 0.32, ``entrypoints/scale_out/token_in_token_out/protocol.py`` and
``entrypoints/openai/completion/protocol.py``.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from agentenv.core.policy import PolicyIdentity, Reply
from agentenv.records.tokens import SamplingParams, unpack_ids, unpack_logprobs

_T = TypeVar("_T", int, str)

_MISSING_LOGPROB = -9999.0
"""What vLLM writes for a log-prob it does not have."""
_DEFAULT_COMPLETION_TOKENS = 16
"""Of ``/v1/completions``, as in OpenAI's API."""
_REFUSED: Mapping[str, object] = {
    "n": 1,
    "best_of": 1,
    "stop": None,
    "min_tokens": 0,
    "ignore_eos": False,
    "logit_bias": None,
    "allowed_token_ids": None,
    "bad_words": None,
    "structured_outputs": None,
    "prompt_logprobs": None,
    "truncate_prompt_tokens": None,
    "repetition_detection": None,
    "stream": False,
    "echo": False,
}
"""Fields that change what is sampled or answered, with the one value that can be had here."""


class BadRequest(Exception):
    """A request cannot be served as it is; the text says why, ``field`` which field."""

    def __init__(self, message: str, field: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.field = field
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One request, whatever route it came by."""

    prompt_ids: array[int]
    sampling: SamplingParams
    seed: int | None
    """None: the server picks one."""
    model: str | None
    request_id: str | None
    echo_prompt: bool
    """Whether the answer repeats the prompt ids."""
    logprobs: bool


def read_generate(body: Mapping[str, Any], room: int) -> Wanted:
    """Read a body of ``/inference/v1/generate``.

    Args:
        body: The decoded JSON object.
        room: Reply tokens where the body names no ``max_tokens``, before the prompt is taken off.

    Raises:
        BadRequest: A field is missing, has the wrong type, or asks for what cannot be done here.
    """
    params = body.get("sampling_params")
    if not isinstance(params, Mapping):
        raise BadRequest("sampling_params is required and must be an object", "sampling_params")
    prompt = _ids(body.get("token_ids"), "token_ids")
    refuse({**params, "stream": body.get("stream", False)})
    return wanted_of(body, params, prompt, max_tokens=max(1, room - len(prompt)))


def read_completions(body: Mapping[str, Any], encode: Callable[[str], array[int]]) -> Wanted:
    """Read a body of ``/v1/completions``; a prompt of text is encoded as it is, nothing is put in front.

    Raises:
        BadRequest: As `read_generate`.
    """
    refuse(body)
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list | str):
        prompt = prompt[0]
    ids = encode(prompt) if isinstance(prompt, str) else _ids(prompt, "prompt")
    return wanted_of(body, body, ids, max_tokens=_DEFAULT_COMPLETION_TOKENS)


def wanted_of(body: Mapping[str, Any], params: Mapping[str, Any], prompt: array[int], *, max_tokens: int) -> Wanted:
    """Read what every route has.

    Args:
        body: Names model and request.
        params: How to sample.
        prompt: (P,) ids.
        max_tokens: Where none is given.

    Raises:
        BadRequest: A field has the wrong type or means nothing.
    """
    neutral = SamplingParams()
    seed = _optional(params, "seed", int)
    sampling = SamplingParams(
        temperature=_real(params, "temperature", neutral.temperature),
        top_p=_real(params, "top_p", neutral.top_p),
        top_k=max(_whole(params, "top_k", 0), 0),
        min_p=_real(params, "min_p", neutral.min_p),
        repetition_penalty=_real(params, "repetition_penalty", neutral.repetition_penalty),
        presence_penalty=_real(params, "presence_penalty", neutral.presence_penalty),
        frequency_penalty=_real(params, "frequency_penalty", neutral.frequency_penalty),
        max_tokens=_whole(params, "max_tokens", max_tokens),
        stop_token_ids=tuple(_ids(params["stop_token_ids"], "stop_token_ids")) if params.get("stop_token_ids") else (),
    )
    if sampling.max_tokens < 1:
        raise BadRequest(f"max_tokens must be at least 1, got {sampling.max_tokens}.", "max_tokens")
    return Wanted(
        prompt_ids=prompt,
        sampling=sampling,
        seed=None if seed is None else seed & 0x7FFFFFFF,
        model=_optional(body, "model", str),
        request_id=_optional(body, "request_id", str),
        echo_prompt=bool(body.get("return_token_ids", False)),
        logprobs=params.get("logprobs") is not None,
    )


def generate_answer(wanted: Wanted, reply: Reply, *, model: str, request_id: str) -> dict[str, Any]:
    """Write an answer of ``/inference/v1/generate``."""
    ids = unpack_ids(reply.sampled.completion_ids).tolist()
    choice: dict[str, Any] = {
        "index": 0,
        "token_ids": ids,
        "finish_reason": reply.finish.value,
        "stop_reason": _stop_reason(wanted, reply),
        "logprobs": None,
    }
    if wanted.logprobs and (values := _logprobs(reply)):
        entries = [{"token_id": token, "logprob": value} for token, value in zip(ids, values, strict=True)]
        choice["logprobs"] = {"content": [{**entry, "rank": None, "top_logprobs": [entry]} for entry in entries]}
    if versions := _versions(reply):
        choice["weight_versions"] = versions
    return {
        "request_id": f"generate-tokens-{request_id}",
        "model": model,
        "created": int(time.time()),
        "output_mode": "tokens",
        "prompt_token_ids": wanted.prompt_ids.tolist() if wanted.echo_prompt else None,
        "choices": [choice],
        "usage": usage(wanted, reply),
    }


def completions_answer(
    wanted: Wanted, reply: Reply, *, model: str, request_id: str, decode: Callable[[list[int]], str]
) -> dict[str, Any]:
    """Write an answer of ``/v1/completions``."""
    ids = unpack_ids(reply.sampled.completion_ids).tolist()
    choice: dict[str, Any] = {
        "index": 0,
        "text": decode(ids),
        "finish_reason": reply.finish.value,
        "stop_reason": _stop_reason(wanted, reply),
        "logprobs": None,
        "token_ids": ids if wanted.echo_prompt else None,
        "prompt_token_ids": wanted.prompt_ids.tolist() if wanted.echo_prompt else None,
    }
    if wanted.logprobs and (values := _logprobs(reply)):
        names = [f"token_id:{token}" for token in ids]
        choice["logprobs"] = {
            "tokens": names,
            "token_logprobs": values,
            "top_logprobs": [{name: value} for name, value in zip(names, values, strict=True)],
            "text_offset": [],
        }
    if versions := _versions(reply):
        choice["weight_versions"] = versions
    return {
        "id": f"cmpl-{request_id}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": usage(wanted, reply),
    }


def models_answer(model: str, identity: PolicyIdentity) -> dict[str, Any]:
    """Write an answer of ``/v1/models``."""
    card = {
        "id": model,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "agentenv",
        "root": identity.model,
        "max_model_len": identity.context_window,
    }
    return {"object": "list", "data": [card]}


def error_answer(message: str, *, status: int, field: str | None = None) -> dict[str, Any]:
    """Write a refusal in vLLM's shape."""
    kinds = {400: "BadRequestError", 401: "Unauthorized", 404: "NotFoundError"}
    return {
        "error": {"message": message, "type": kinds.get(status, "InternalServerError"), "param": field, "code": status}
    }


def refuse(params: Mapping[str, Any], refused: Mapping[str, object] = _REFUSED) -> None:
    """Refuse fields that are given, and not as the one value that can be had here.

    Raises:
        BadRequest: Names the field.
    """
    for name, only in refused.items():
        given = params.get(name)
        if given is not None and given not in (only, [], {}):
            raise BadRequest(f"{name} = {given!r:.100} cannot be had from this server; leave it out.", name)


def _ids(given: Any, name: str) -> array[int]:
    if not isinstance(given, list) or not given:
        raise BadRequest(f"{name} must be a list of at least one token id", name)
    try:
        return array("i", given)
    except (TypeError, OverflowError) as error:
        raise BadRequest(f"{name} must hold token ids only: {error}", name) from error


def _real(params: Mapping[str, Any], name: str, default: float) -> float:
    value = params.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest(f"{name} must be a number, got {value!r:.60}", name)
    return float(value)


def _whole(params: Mapping[str, Any], name: str, default: int) -> int:
    value = _optional(params, name, int)
    return default if value is None else value


def _optional(params: Mapping[str, Any], name: str, kind: type[_T]) -> _T | None:
    value = params.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, kind):
        raise BadRequest(f"{name} must be of type {kind.__name__}, got {value!r:.60}", name)
    return value


def _stop_reason(wanted: Wanted, reply: Reply) -> int | None:
    """Only for a stop token that was asked for; None for the model's own end, as vLLM does."""
    return reply.stop_token_id if reply.stop_token_id in wanted.sampling.stop_token_ids else None


def _logprobs(reply: Reply) -> list[float]:
    return [_MISSING_LOGPROB if value is None else value for value in unpack_logprobs(reply.sampled.logprobs)]


def _versions(reply: Reply) -> list[dict[str, Any]]:
    spans = reply.sampled.version_spans
    if any(span.version is None for span in spans):
        return []
    return [{"version": span.version, "start": span.start, "end": span.end} for span in spans]


def usage(wanted: Wanted, reply: Reply) -> dict[str, Any]:
    """Count tokens: those of the prompt as it was read, and those that were sampled."""
    n_prompt, n_reply = len(wanted.prompt_ids), reply.sampled.n
    cached = None if reply.cached_tokens is None else {"cached_tokens": reply.cached_tokens}
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_reply,
        "total_tokens": n_prompt + n_reply,
        "prompt_tokens_details": cached,
    }
