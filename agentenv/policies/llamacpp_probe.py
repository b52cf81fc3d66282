"""What is asked of a freshly loaded llama.cpp before the first episode, and what the answers mean.

What this module owns: the start-up questions (window, vocabulary, tokenizer, end token, log-prob distribution, whether
sampling settings arrive). All of it blocks; it runs in a worker thread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentenv.core.renderer import Tokenizer
from agentenv.errors import ConfigError, PolicyServerFault
from agentenv.policies.llamacpp_engine import LlamaEngine, LlamaSettings
from agentenv.policies.llamacpp_sampling import sampling_body
from agentenv.policies.probe import PROBE_TEXTS, TOKENIZER_TEXT, judge_temperatures
from agentenv.records.axes import Distribution
from agentenv.records.tokens import SamplingParams

_ODD = SamplingParams(
    temperature=0.875,
    top_p=0.75,
    top_k=7,
    min_p=0.125,
    repetition_penalty=1.25,
    presence_penalty=0.5,
    frequency_penalty=0.25,
)
"""Values no default has, exact in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the engine turned out to be."""

    window: int
    """Tokens of prompt and reply together in one slot."""
    vocab_size: int
    end_id: int | None
    """The model's end token; None if it names none."""
    distribution: Distribution
    details: dict[str, str]


def examine(engine: LlamaEngine, settings: LlamaSettings, tokenizer: Tokenizer) -> Findings:
    """Ask everything.

    Raises:
        ConfigError: Another tokenizer than ours, or a window beyond the model's.
        PolicyServerFault: The engine ignores a sampling setting, or does not answer.
    """
    props = engine.ask("/props")
    meta = dict(engine.ask("/v1/models")["data"][0].get("meta") or {})
    window = _window(props, meta, settings)
    compared = _compare_tokenizers(engine, tokenizer, int(meta.get("n_vocab", 0)), str(props.get("eos_token") or ""))
    _check_settings_arrive(engine, tokenizer)
    distribution, reason = _distribution(engine, [tokenizer.encode(text).tolist() for text in PROBE_TEXTS])
    return Findings(
        window=window,
        vocab_size=int(meta["n_vocab"]),
        end_id=_end_id(engine, str(props.get("eos_token") or "")),
        distribution=distribution,
        details={
            "quantisation": str(meta.get("ftype", "unknown")),
            "parameters": str(meta.get("n_params", "unknown")),
            "tokenizer_check": compared,
            "logprobs_probe": reason,
            "penalty_window": "prompt and reply",
        },
    )


def _window(props: dict[str, Any], meta: dict[str, Any], settings: LlamaSettings) -> int:
    window = int(props["default_generation_settings"]["n_ctx"])
    trained = int(meta.get("n_ctx_train", settings.n_ctx))
    if settings.n_ctx > trained or window < settings.n_ctx:
        raise ConfigError(
            f"n_ctx is {settings.n_ctx} tokens per slot, but {settings.model_path.name} was trained with a window of "
            f"{trained} and the engine gives {window}. Lower n_ctx to {min(trained, window)} at most."
        )
    return settings.n_ctx


def _compare_tokenizers(engine: LlamaEngine, tokenizer: Tokenizer, n_vocab: int, end: str) -> str:
    if tokenizer.vocab_size > n_vocab:
        raise ConfigError(
            f"The tokenizer at hand has {tokenizer.vocab_size} ids, the model {n_vocab}: they do not belong together. "
            "Use the tokenizer of the model's own GGUF file."
        )
    text = f"{TOKENIZER_TEXT}\n{end}\n{end}x"
    n = 0
    for control, ours in ((True, tokenizer.encode(text)), (False, tokenizer.encode_plain(text))):
        theirs = _tokenize(engine, text, control=control)
        n += len(theirs)
        if theirs != ours.tolist():
            raise ConfigError(_difference(tokenizer, ours.tolist(), theirs, control=control))
    return f"equal on {n} test tokens"


def _tokenize(engine: LlamaEngine, text: str, *, control: bool) -> list[int]:
    body = {"content": text, "add_special": False, "parse_special": control}
    return [int(token) for token in engine.ask("/tokenize", body)["tokens"]]


def _difference(tokenizer: Tokenizer, ours: list[int], theirs: list[int], *, control: bool) -> str:
    pairs = enumerate(zip(ours, theirs, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
    return (
        f"The tokenizer at hand is not the model's: of {len(ours)} test ids (llama.cpp: {len(theirs)}), control tokens "
        f"{'read' if control else 'as plain text'}, the first difference is at position {at}: ours "
        f"{ours[at : at + 5]} ({tokenizer.decode(ours[at : at + 5])!r}), theirs {theirs[at : at + 5]}, after "
        f"{tokenizer.decode(ours[max(0, at - 5) : at])!r}. Use the tokenizer of the model's own GGUF file."
    )


def _end_id(engine: LlamaEngine, end: str) -> int | None:
    ids = _tokenize(engine, end, control=True) if end else []
    return ids[0] if len(ids) == 1 else None


def _check_settings_arrive(engine: LlamaEngine, tokenizer: Tokenizer) -> None:
    """Send settings no default has, and compare them with those the engine says it used."""
    sent = sampling_body(_ODD, 64)
    prompt = tokenizer.encode(PROBE_TEXTS[0]).tolist()
    used = engine.complete({**sent, "prompt": prompt, "n_predict": 1, "n_probs": 1, "seed": 17}).settings
    for name, value in sent.items():
        if used.get(name) != value:
            raise PolicyServerFault.permanent(
                f"llama.cpp (xllamacpp {engine.version}) was sent {name} = {value!r} and used {used.get(name)!r}: this "
                "release does not understand the setting, so records made with it would be wrong."
            )


def _distribution(engine: LlamaEngine, prompts: Sequence[list[int]]) -> tuple[Distribution, str]:
    """Compare the candidates of the same prompts at temperatures 1 and 2."""
    found: set[Distribution] = set()
    reasons: list[str] = []
    for prompt in prompts:
        plain, tempered = (_candidates(engine, prompt, temperature) for temperature in (1.0, 2.0))
        verdict, reason = judge_temperatures(plain, tempered)
        reasons.append(reason)
        if verdict is not Distribution.UNKNOWN:
            found.add(verdict)
    return (found.pop() if len(found) == 1 else Distribution.UNKNOWN), "; ".join(reasons)


def _candidates(engine: LlamaEngine, prompt: list[int], temperature: float) -> dict[int, float]:
    body = sampling_body(SamplingParams(temperature=temperature), 64)
    answer = engine.complete({**body, "prompt": prompt, "n_predict": 1, "n_probs": 8, "seed": 17})
    given = answer.candidates[0] if answer.candidates else {}
    return {token: value for token, value in given.items() if math.isfinite(value)}
