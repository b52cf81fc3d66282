"""Requests and answers of the stub engine in the shapes of vLLM's two token routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from agentenv.testing.stub_faults import StubAnswer

Top = Sequence[tuple[int, float]]
"""Candidates of one position: (id, log-prob), best first."""


class Params(msgspec.Struct):
    """Sampling parameters, with vLLM's own defaults."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_tokens: int = 16
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    """Ids to score at every position instead of the best ones."""


class Generate(msgspec.Struct):
    """Body of ``/inference/v1/generate``."""

    token_ids: list[int]
    sampling_params: Params
    model: str | None = None


class Completions(Params):
    """Body of ``/v1/completions``."""

    prompt: list[int] = []
    model: str | None = None


class Chat(Params):
    """Body of ``/v1/chat/completions``."""

    messages: list[dict[str, Any]] = []
    model: str | None = None


class Written(msgspec.Struct):
    """Everything an answer says, before it has a shape."""

    prompt: list[int]
    answer: StubAnswer
    wants_logprobs: bool
    tops: list[Top]
    """(C,) candidates; empty unless asked for."""
    prompt_tops: list[Top | None] | None
    """(P,) candidates of prompt positions, the first None; None unless asked for."""


read_generate = msgspec.json.Decoder(Generate).decode
read_chat = msgspec.json.Decoder(Chat).decode
read_completions = msgspec.json.Decoder(Completions).decode


def generate_body(written: Written, *, strings: bool, spans: bool) -> dict[str, Any]:
    """Answer of ``/inference/v1/generate``; ``strings`` writes ids as before 0.32."""
    answer = written.answer
    candidate = _named if strings else _numbered
    sampled = [candidate(token, value) for token, value in zip(answer.named, answer.logprobs, strict=False)]
    tops: list[Top] = written.tops or [()] * len(sampled)
    content = [
        {**own, "top_logprobs": [own, *(candidate(*each) for each in top)] if top else [own]}
        for own, top in zip(sampled, tops, strict=False)
    ]
    choice = _choice(written) | {
        "logprobs": {"content": content} if written.wants_logprobs and not answer.bare else None,
        "weight_versions": answer.spans if spans else None,
    }
    return {
        "request_id": "generate-tokens-stub",
        "choices": [choice],
        "prompt_token_ids": _echo(written),
        "prompt_logprobs": _prompt_logprobs(written),
        "usage": _usage(written),
    }


def completions_body(written: Written) -> dict[str, Any]:
    """Answer of ``/v1/completions``."""
    answer = written.answer
    logprobs = {
        "tokens": [f"token_id:{token}" for token in answer.named],
        "token_logprobs": answer.logprobs,
        "top_logprobs": [{f"token_id:{token}": value for token, value in top} for top in written.tops],
    }
    choice = _choice(written) | {
        "text": "",
        "prompt_token_ids": _echo(written),
        "prompt_logprobs": _prompt_logprobs(written),
        "logprobs": logprobs if written.wants_logprobs and not answer.bare else None,
    }
    return {"id": "cmpl-stub", "choices": [choice], "usage": _usage(written)}


def chat_body(written: Written, message: dict[str, Any]) -> dict[str, Any]:
    """Answer of ``/v1/chat/completions``: no ids, no log-probs."""
    finish = "tool_calls" if message.get("tool_calls") else written.answer.finish
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish}
    return {"id": "chatcmpl-stub", "choices": [choice], "usage": {"prompt_tokens": len(written.prompt)}}


def _choice(written: Written) -> dict[str, Any]:
    answer = written.answer
    return {"index": 0, "token_ids": answer.ids, "finish_reason": answer.finish, "stop_reason": None}


def _echo(written: Written) -> list[int]:
    return written.prompt[: len(written.prompt) - written.answer.dropped]


def _usage(written: Written) -> dict[str, Any]:
    return {"prompt_tokens": len(written.prompt), "prompt_tokens_details": {"cached_tokens": 0}}


def _prompt_logprobs(written: Written) -> list[dict[str, Any] | None] | None:
    if written.prompt_tops is None:
        return None
    return [
        None if top is None else {str(token): {"logprob": value, "rank": None} for token, value in top}
        for top in written.prompt_tops
    ]


def _named(token: int, value: float | None) -> dict[str, Any]:
    return {"token": f"token_id:{token}", "logprob": value}


def _numbered(token: int, value: float | None) -> dict[str, Any]:
    return {"token_id": token, "logprob": value}
