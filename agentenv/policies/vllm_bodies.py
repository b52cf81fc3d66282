"""The bodies of vLLM's two token routes as structures, with only the fields that are read.

Source: vLLM's ``entrypoints/scale_out/token_in_token_out/protocol.py`` (0.26 to 0.33) and
``entrypoints/openai/completion/protocol.py``.
"""

from __future__ import annotations

import msgspec


class GenerateParams(msgspec.Struct):
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    max_tokens: int
    seed: int
    stop_token_ids: tuple[int, ...]
    logprobs: int
    skip_special_tokens: bool = False
    detokenize: bool = False


class GenerateRequest(msgspec.Struct):
    token_ids: msgspec.Raw
    sampling_params: GenerateParams
    model: str
    request_id: str
    return_token_ids: bool = True
    stream: bool = False


class CompletionsRequest(msgspec.Struct):
    model: str
    prompt: msgspec.Raw
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    max_tokens: int
    seed: int
    stop_token_ids: tuple[int, ...]
    logprobs: int
    request_id: str
    skip_special_tokens: bool = False
    return_token_ids: bool = True
    return_tokens_as_token_ids: bool = True
    return_weight_versions: bool = True
    """From 0.33 on; older servers ignore it."""
    stream: bool = False


class LogprobEntry(msgspec.Struct, gc=False):
    """One sampled token, or one candidate."""

    logprob: float | None = None
    token_id: int | None = None
    token: str | None = None


class LogprobEntryWithTop(LogprobEntry):
    top_logprobs: list[LogprobEntry] = []
    """Repeats the sampled token; only the probe reads it, through a decoder of its own."""


class WeightSpan(msgspec.Struct, gc=False):
    version: str
    start: int
    end: int


class CachedTokens(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    prompt_tokens_details: CachedTokens | None = None


class GenerateLogprobs(msgspec.Struct):
    content: list[LogprobEntry] | None = None


class GenerateChoice(msgspec.Struct):
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: GenerateLogprobs | None = None
    weight_versions: list[WeightSpan] | None = None


class GenerateReply(msgspec.Struct):
    choices: list[GenerateChoice]
    prompt_token_ids: msgspec.Raw = msgspec.Raw(b"null")
    usage: Usage | None = None


class TopLogprobs(msgspec.Struct):
    content: list[LogprobEntryWithTop] | None = None


class TopChoice(msgspec.Struct):
    logprobs: TopLogprobs | None = None


class TopReply(msgspec.Struct):
    choices: list[TopChoice]


class CompletionLogprobs(msgspec.Struct):
    token_logprobs: list[float | None] | None = None
    tokens: list[str] | None = None


class CompletionChoice(msgspec.Struct):
    token_ids: list[int] | None = None
    prompt_token_ids: msgspec.Raw = msgspec.Raw(b"null")
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: CompletionLogprobs | None = None
    weight_versions: list[WeightSpan] | None = None


class CompletionReply(msgspec.Struct):
    choices: list[CompletionChoice]
    usage: Usage | None = None


class CompletionTopLogprobs(msgspec.Struct):
    top_logprobs: list[dict[str, float | None] | None] | None = None


class CompletionTopChoice(msgspec.Struct):
    logprobs: CompletionTopLogprobs | None = None


class CompletionTopReply(msgspec.Struct):
    choices: list[CompletionTopChoice]


encoder = msgspec.json.Encoder()
generate_decoder = msgspec.json.Decoder(GenerateReply)
generate_top_decoder = msgspec.json.Decoder(TopReply)
completion_decoder = msgspec.json.Decoder(CompletionReply)
completion_top_decoder = msgspec.json.Decoder(CompletionTopReply)
