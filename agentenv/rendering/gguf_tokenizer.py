"""The tokenizer and chat template that a GGUF file carries, with the ids that llama.cpp gives.

Only byte-level BPE (``tokenizer.ggml.model`` = ``gpt2``): llama.cpp's other models are not merges over bytes.

Source of the splitting rules: llama.cpp's table of pre-tokenizers; ``smollm`` splits every digit off, which other
conversions of such files forget.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentenv.errors import ConfigError
from agentenv.rendering.gguf_file import read_metadata
from agentenv.rendering.hf_tokenizer import HfTokenizer
from agentenv.rendering.model_files import Templates

_CONTROL, _USER_DEFINED = 3, 4
_DIGIT = r"\p{N}"
_WORDS_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_WORDS_GPT2,),
    "smollm": (_DIGIT, _WORDS_GPT2),
    "starcoder": (_DIGIT, _WORDS_GPT2),
    "qwen2": (_WORDS_CL100K % "",),
    "llama-bpe": (_WORDS_CL100K % "{1,3}",),
}
"""Patterns that cut a text into words, one after another; the last cuts what the first left whole."""
_WHOLE_WORDS = frozenset({"llama-bpe"})
"""Where a word that is in the vocabulary is taken whole, whatever the merges say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufModel:
    """What a GGUF file says about text."""

    tokenizer: HfTokenizer
    special_tokens: Mapping[str, str]
    """``bos_token``, ``eos_token`` … as text."""
    templates: Templates | None


def read_gguf(path: Path) -> GgufModel:
    """Read vocabulary, merges, splitting, special tokens and chat template.

    Raises:
        ConfigError: The file is no GGUF, or its vocabulary is of a kind that is not supported.
    """
    metadata = read_metadata(path)
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ConfigError(
            f"{path} has a vocabulary of the kind {kind!r}, only 'gpt2' (byte-level BPE) is read from GGUF. "
            "Give the original model directory, which has a tokenizer.json."
        )
    tokens: list[str] = metadata.get("tokenizer.ggml.tokens", [])
    templates = _templates(metadata)
    tokenizer = HfTokenizer(
        _definition(path, metadata, tokens),
        template_text="" if templates is None else templates.default + (templates.tool_use or ""),
        eos_ids=_eos_ids(metadata),
        sha256=_hash(metadata),
    )
    return GgufModel(tokenizer=tokenizer, special_tokens=_special_tokens(metadata, tokens), templates=templates)


def _definition(path: Path, metadata: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, Any]:
    """Write the vocabulary as a ``tokenizer.json``."""
    split = str(metadata.get("tokenizer.ggml.pre"))
    if split not in _SPLITS:
        raise ConfigError(
            f"{path} splits text in the way {split!r}, known are {', '.join(sorted(_SPLITS))}. "
            "Give the original model directory, which has a tokenizer.json."
        )
    types: Sequence[int] = metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    added = [
        {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": kind == _CONTROL}
        for number, (token, kind) in enumerate(zip(tokens, types, strict=True)) if kind in (_CONTROL, _USER_DEFINED)
    ]  # fmt: skip
    return {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _pre_tokenizers(_SPLITS[split])},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {
            "type": "BPE",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in metadata.get("tokenizer.ggml.merges", [])],
            "ignore_merges": split in _WHOLE_WORDS,
        },
    }


def _pre_tokenizers(patterns: Sequence[str]) -> list[dict[str, Any]]:
    """Write the patterns as steps, in the library's own forms where it has one: those are faster."""
    steps: list[dict[str, Any]] = []
    for pattern in patterns:
        if pattern == _DIGIT:
            steps.append({"type": "Digits", "individual_digits": True})
        elif pattern != _WORDS_GPT2:
            steps.append({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False})
    own_words = patterns[-1] == _WORDS_GPT2
    return [*steps, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": own_words}]


def _eos_ids(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    names = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
    return tuple(dict.fromkeys(int(metadata[name]) for name in names if name in metadata))


def _special_tokens(metadata: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, str]:
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    found: dict[str, str] = {}
    for key, name in names.items():
        number = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(number, int) and number < len(tokens):
            found[name] = tokens[number]
    return found


def _templates(metadata: Mapping[str, Any]) -> Templates | None:
    default = metadata.get("tokenizer.chat_template")
    tool_use = metadata.get("tokenizer.chat_template.tool_use")
    return None if default is None else Templates(default=default, tool_use=tool_use)


def _hash(metadata: Mapping[str, Any]) -> str:
    """Hash all that decides ids; the template and the weights are not part of it."""
    parts = {key: value for key, value in metadata.items() if key.startswith("tokenizer.ggml.")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
