"""What the stub engine can be told to do wrong, and how it looks on the wire."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agentenv.testing.stub_model import Drawn

MISSING = -9999.0
"""What vLLM writes for a log-prob that is missing, NaN or -inf."""
NAN_MARK = -7777.0
"""Stands for NaN until the body is encoded, because JSON has none."""


class StubFault(StrEnum):
    """What the engine can be told to do wrong, once for each time it is told (`StubEngine.inject`)."""

    FEW_LOGPROBS = "few_logprobs"
    NO_LOGPROBS = "no_logprobs"
    NAN_LOGPROB = "nan_logprob"
    NULL_LOGPROB = "null_logprob"
    MISSING_LOGPROB = "missing_logprob"
    """-9999.0"""
    POSITIVE_LOGPROB = "positive_logprob"
    TINY_POSITIVE_LOGPROB = "tiny_positive_logprob"
    OTHER_LOGPROB = "other_logprob"
    """Log-probs that name another id than the sampled one."""
    OTHER_PROMPT = "other_prompt"
    """Says that it used one prompt id less."""
    FOREIGN_ID = "foreign_id"
    """Samples an id outside the vocabulary."""
    TOO_MANY_TOKENS = "too_many_tokens"
    ODD_FINISH = "odd_finish"
    GAPPED_SPANS = "gapped_spans"
    ABORT = "abort"
    """Answers 200 with half the ids and the finish reason ``abort``."""
    TOO_LONG_GENERATE = "too_long_generate"
    TOO_LONG_GENERATE_FULL = "too_long_generate_full"
    TOO_LONG_COMPLETIONS = "too_long_completions"
    TOO_LONG_COMPLETIONS_FULL = "too_long_completions_full"
    REFUSED = "refused"
    BUSY_429 = "busy_429"
    BROKEN_500 = "broken_500"
    BUSY_503 = "busy_503"
    RESET = "reset"
    """Drops the connection without an answer."""
    HANG = "hang"
    """Never answers."""
    NO_JSON = "no_json"


REFUSALS: dict[StubFault, tuple[int, str, str | None]] = {
    StubFault.TOO_LONG_GENERATE: (
        400,
        "The decoder prompt (length 3000) is longer than the maximum model length of 2048.",
        None,
    ),
    StubFault.TOO_LONG_GENERATE_FULL: (
        400,
        "The decoder prompt (length 2048) plus the requested output tokens is longer than the maximum model length.",
        None,
    ),
    StubFault.TOO_LONG_COMPLETIONS: (
        400,
        "This model's maximum context length is 2048 tokens. However, your prompt contains 3000 input tokens.",
        "input_tokens",
    ),
    StubFault.TOO_LONG_COMPLETIONS_FULL: (400, "max_tokens must be at least 1, got 0.", "max_tokens"),
    StubFault.REFUSED: (400, "top_p must be in (0, 1], got 7.", "top_p"),
    StubFault.BUSY_429: (429, "Too many requests.", None),
    StubFault.BROKEN_500: (500, "EngineCore encountered an issue.", None),
    StubFault.BUSY_503: (503, "The engine is paused.", None),
}


@dataclass(slots=True)
class StubAnswer:
    """One reply before it has a shape."""

    ids: list[int]
    named: list[int]
    """The id each log-prob says it is of."""
    logprobs: list[float | None]
    finish: str
    spans: list[dict[str, Any]]
    dropped: int = 0
    """Prompt ids missing from the echo."""
    bare: bool = False
    """Whether the log-probs are left out."""

    @classmethod
    def of(cls, drawn: Drawn, *, label: str, aborted: bool) -> StubAnswer:
        """Take what was drawn, or the first half of it if the engine was told to abort."""
        n = len(drawn.ids) // 2 if aborted else len(drawn.ids)
        ids = drawn.ids[:n]
        logprobs: list[float | None] = [MISSING if value == -math.inf else value for value in drawn.logprobs[:n]]
        finish = "abort" if aborted else "stop" if drawn.stopped else "length"
        return cls(ids, ids, logprobs, finish, [{"version": label, "start": 0, "end": n}] if n else [])


def spoil(answer: StubAnswer, fault: StubFault | None, vocab_size: int) -> StubAnswer:  # noqa: C901, PLR0912  one line per fault
    """Let the answer show ``fault``; those that are no matter of its content leave it as it is."""
    match fault:
        case StubFault.FEW_LOGPROBS:
            answer.logprobs = answer.logprobs[:-1]
        case StubFault.NO_LOGPROBS:
            answer.bare = True
        case StubFault.NAN_LOGPROB:
            answer.logprobs[0] = NAN_MARK
        case StubFault.NULL_LOGPROB:
            answer.logprobs[0] = None
        case StubFault.MISSING_LOGPROB:
            answer.logprobs[0] = MISSING
        case StubFault.POSITIVE_LOGPROB:
            answer.logprobs[0] = 0.5
        case StubFault.TINY_POSITIVE_LOGPROB:
            answer.logprobs[0] = 5e-7
        case StubFault.OTHER_LOGPROB:
            answer.named = [(token + 1) % vocab_size for token in answer.ids]
        case StubFault.OTHER_PROMPT:
            answer.dropped = 1
        case StubFault.FOREIGN_ID:
            answer.ids = answer.named = [vocab_size, *answer.ids[1:]]
        case StubFault.TOO_MANY_TOKENS:
            answer.ids = answer.named = answer.ids * 2
            answer.logprobs = answer.logprobs * 2
        case StubFault.ODD_FINISH:
            answer.finish = "error"
        case StubFault.GAPPED_SPANS:
            answer.spans = [{"version": "default", "start": 1, "end": len(answer.ids)}]
        case _:
            pass
    return answer
