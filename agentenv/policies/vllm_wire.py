"""The bodies of vLLM's two token routes: what is sent, and what comes back as one shape.

What this module owns: which field means what, and the two forms a log-prob entry has had. It does no I/O and judges
nothing; the structures are `vllm_bodies`'s, the judging is `vllm_reply`'s.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol

import msgspec

from agentenv.errors import PolicyServerFault, ended
from agentenv.policies.vllm_bodies import (
    CompletionLogprobs,
    CompletionReply,
    CompletionsRequest,
    CompletionTopLogprobs,
    CompletionTopReply,
    GenerateParams,
    GenerateReply,
    GenerateRequest,
    LogprobEntry,
    LogprobEntryWithTop,
    TopReply,
    Usage,
    WeightSpan,
    completion_decoder,
    completion_top_decoder,
    encoder,
    generate_decoder,
    generate_top_decoder,
)
from agentenv.records.tokens import SamplingParams

_ID_MARK = "token_id:"
_NO_ROUTE = frozenset({403, 404, 405, 501})


class WireCall(NamedTuple):
    """One request, before it has a shape."""

    prompt_json: bytes
    """The prompt ids as compact JSON, encoded once: sent as they are and compared with the echo byte for byte."""
    sampling: SamplingParams
    max_tokens: int
    seed: int
    request_id: str
    n_logprobs: int = 0
    """Candidates to report beside the sampled token."""


class WireReply(NamedTuple):
    """One answer, whatever route it came by. Nothing in it is checked."""

    ids: list[int]
    """(C,) sampled ids, stop token included."""
    logprobs: list[float | None] | None
    """(C,) as the engine wrote them; None if it wrote none at all."""
    logprob_ids: list[int | None]
    """(C,) the id each log-prob names; None where it names none."""
    finish: str | None
    stop_reason: int | str | None
    versions: list[tuple[str, int, int]] | None
    """(label, start, end) of weight spans; None if the route gives none."""
    prompt_echo: bytes | None
    """JSON of the prompt ids the engine says it used; None if it does not say."""
    cached_tokens: int | None


class Route(Protocol):
    """One of the two ways in."""

    @property
    def path(self) -> str:
        """Path below the server's address."""
        ...

    def encode(self, call: WireCall) -> bytes:
        """Write the request's body."""
        ...

    def decode(self, body: bytes) -> WireReply:
        """Read the body of a 200.

        Raises:
            PolicyServerFault: It is not what this route answers.
        """
        ...

    def decode_top(self, body: bytes) -> dict[int, float]:
        """Read the candidates of the first sampled token, itself included: id to log-prob. Empty if there are none.

        Raises:
            PolicyServerFault: It is not what this route answers.
        """
        ...


def encode_prompt(ids: list[int]) -> bytes:
    """Encode prompt ids as compact JSON, the form vLLM echoes them in."""
    return encoder.encode(ids)


class GenerateRoute:
    """``/inference/v1/generate``: ids, log-probs with ids, weight spans."""

    path = "/inference/v1/generate"

    def __init__(self, model: str) -> None:
        self._model = model

    def encode(self, call: WireCall) -> bytes:
        sampling = call.sampling
        params = GenerateParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            max_tokens=call.max_tokens,
            seed=call.seed,
            stop_token_ids=sampling.stop_token_ids,
            logprobs=call.n_logprobs,
        )
        return encoder.encode(
            GenerateRequest(
                token_ids=msgspec.Raw(call.prompt_json),
                sampling_params=params,
                model=self._model,
                request_id=call.request_id,
            )
        )

    def decode(self, body: bytes) -> WireReply:
        reply: GenerateReply = _decode(generate_decoder, body, self.path)
        choice = _only(reply.choices, self.path)
        content = choice.logprobs.content if choice.logprobs is not None else None
        entries = content or ()
        named: list[int | None] = [entry.token_id for entry in entries]
        if None in named:
            named = [_id_of(entry) for entry in entries]
        return WireReply(
            ids=_present(choice.token_ids, self.path),
            logprobs=None if content is None else [entry.logprob for entry in entries],
            logprob_ids=named,
            finish=choice.finish_reason,
            stop_reason=choice.stop_reason,
            versions=_versions(choice.weight_versions),
            prompt_echo=_echo(reply.prompt_token_ids),
            cached_tokens=_cached(reply.usage),
        )

    def decode_top(self, body: bytes) -> dict[int, float]:
        reply: TopReply = _decode(generate_top_decoder, body, self.path)
        logprobs = _only(reply.choices, self.path).logprobs
        if logprobs is None or not logprobs.content:
            return {}
        first: LogprobEntryWithTop = logprobs.content[0]
        pairs = [(_id_of(each), each.logprob) for each in (*first.top_logprobs, first)]
        return {token: value for token, value in pairs if token is not None and value is not None}


class CompletionsRoute:
    """``/v1/completions`` with a prompt of ids: every version has it, none before 0.33 gives weight spans."""

    path = "/v1/completions"

    def __init__(self, model: str) -> None:
        self._model = model

    def encode(self, call: WireCall) -> bytes:
        sampling = call.sampling
        return encoder.encode(
            CompletionsRequest(
                model=self._model,
                prompt=msgspec.Raw(call.prompt_json),
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                min_p=sampling.min_p,
                repetition_penalty=sampling.repetition_penalty,
                presence_penalty=sampling.presence_penalty,
                frequency_penalty=sampling.frequency_penalty,
                max_tokens=call.max_tokens,
                seed=call.seed,
                stop_token_ids=sampling.stop_token_ids,
                logprobs=call.n_logprobs,
                request_id=call.request_id,
            )
        )

    def decode(self, body: bytes) -> WireReply:
        reply: CompletionReply = _decode(completion_decoder, body, self.path)
        choice = _only(reply.choices, self.path)
        given = choice.logprobs or CompletionLogprobs()
        return WireReply(
            ids=_present(choice.token_ids, self.path),
            logprobs=given.token_logprobs,
            logprob_ids=[_numbered(token) for token in given.tokens or ()],
            finish=choice.finish_reason,
            stop_reason=choice.stop_reason,
            versions=_versions(choice.weight_versions),
            prompt_echo=_echo(choice.prompt_token_ids),
            cached_tokens=_cached(reply.usage),
        )

    def decode_top(self, body: bytes) -> dict[int, float]:
        reply: CompletionTopReply = _decode(completion_top_decoder, body, self.path)
        logprobs: CompletionTopLogprobs | None = _only(reply.choices, self.path).logprobs
        first = logprobs.top_logprobs[0] if logprobs is not None and logprobs.top_logprobs else None
        pairs = [(_numbered(name), value) for name, value in (first or {}).items()]
        return {token: value for token, value in pairs if token is not None and value is not None}


def no_such_route(status: int, body: bytes) -> bool:
    """Whether a refusal means that the server has no such route, rather than that the request is wrong."""
    return status in _NO_ROUTE and not (status == 404 and b'"error"' in body)


def _decode(decoder: msgspec.json.Decoder[Any], body: bytes, path: str) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason: Exception = error
    try:
        if (mended := _without_constants(body)) is not None:
            return decoder.decode(mended)
    except msgspec.DecodeError as error:
        reason = error
    raise PolicyServerFault(
        f"The answer of {path} is not what vLLM gives: {ended(reason)} It begins {body[:120]!r}. "
        "Is this a vLLM server, and is no proxy in between?"
    ) from reason


def _without_constants(body: bytes) -> bytes | None:
    """Replace NaN and infinities, which are no JSON but have been seen, by null; None if that was not the trouble.

    Positive infinity becomes a large number instead, so that it stays as wrong as it is.
    """
    replaced = 0

    def constant(name: str) -> float | None:
        nonlocal replaced
        replaced += 1
        return 1e300 if name == "Infinity" else None

    try:
        decoded = json.loads(body, parse_constant=constant)
    except ValueError:
        return None
    return encoder.encode(decoded) if replaced else None


def _only(choices: list[Any], path: str) -> Any:
    if len(choices) != 1:
        raise PolicyServerFault(f"{path} answered {len(choices)} choices where 1 was asked for.")
    return choices[0]


def _present(ids: list[int] | None, path: str) -> list[int]:
    if ids is None:
        raise PolicyServerFault.permanent(
            f"{path} answered without token ids. Records need the sampled ids: use vLLM 0.26 or newer, "
            "or the policy 'openai' (text only, not trainable)."
        )
    return ids


def _id_of(entry: LogprobEntry) -> int | None:
    return entry.token_id if entry.token_id is not None else _numbered(entry.token)


def _numbered(token: str | None) -> int | None:
    if token is None or not token.startswith(_ID_MARK):
        return None
    digits = token[len(_ID_MARK) :]
    return int(digits) if digits.isascii() and digits.isdigit() else None


def _versions(spans: list[WeightSpan] | None) -> list[tuple[str, int, int]] | None:
    return None if spans is None else [(span.version, span.start, span.end) for span in spans]


def _echo(raw: msgspec.Raw) -> bytes | None:
    echo = bytes(raw)
    return None if echo == b"null" else echo


def _cached(usage: Usage | None) -> int | None:
    details = usage.prompt_tokens_details if usage is not None else None
    return details.cached_tokens if details is not None else None
