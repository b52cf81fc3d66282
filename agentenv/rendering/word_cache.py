r"""An exact shortcut for encoding ASCII text with byte-level BPE: each word is merged once and remembered.

Byte-level BPE cuts a text into words by a pattern and merges inside each word alone, so a word's ids never depend on
its neighbours. What agents read (tool output, JSON, code) repeats its words; looking them up costs about a sixth of
encoding them. A text that comes again as a whole, such as a system prompt with its tools, is looked up as a whole.

Patterns are written with Unicode classes, which `re` does not have: on ASCII text they are plain character ranges.
Anything else (another model, a normalizer that changes ASCII, a class that is not known here, text that is not ASCII)
goes the ordinary way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

_CLASSES = {r"\p{L}": "A-Za-z", r"\p{N}": "0-9", r"\p{Lu}": "A-Z", r"\p{Ll}": "a-z",
            r"\p{Lt}": "", r"\p{Lm}": "", r"\p{Lo}": "", r"\p{M}": ""}  # fmt: skip
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What ``ByteLevel`` splits by. Source: the GPT-2 tokenizer."""
_ASCII_WORDS = r" ?[A-Za-z]+| ?[0-9]+|'(?:[stmd]|re|ve|ll)| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+"
"""The same on ASCII, the commonest first: no two alternatives but the second and third from the end begin alike."""
_ASCII_WORDS_AND_DIGITS = r" ?[A-Za-z]+|[0-9]|'(?:[stmd]|re|ve|ll)| ?[^\sA-Za-z0-9]+|\s+(?=[0-9])|\s+(?!\S)|\s+"
"""The same after every digit was split off: a digit then ends white space as the end of the text does."""
_HARMLESS_NORMALIZERS = (None, "NFC", "NFD", "NFKC", "NFKD")
_SET_OPERATION = re.compile(r"&&|--|\|\||~~")
"""What `re` takes for letters inside a class, and other libraries for operations on sets."""
_MAX_WORDS = 1 << 16
_MAX_WORD_LENGTH = 64
_MAX_TEXTS = 256
_MAX_TEXT_LENGTH = 1 << 14


class WordCache:
    """Encodes ASCII text word by word. Safe in several threads: a word may be merged twice, never wrongly."""

    def __init__(
        self, pattern: re.Pattern[str], encode_word: Callable[[str], list[int]], *, max_words: int = _MAX_WORDS
    ) -> None:
        """Remember what ``encode_word`` gives for each match of ``pattern``, ``max_words`` at a time."""
        self._words = pattern.findall
        self._encode_word = encode_word
        self._max_words = max_words
        self._known: dict[str, list[int]] = {}
        self._texts: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Encode ASCII text that holds no added token."""
        whole = self._known.get(text) or self._texts.get(text)
        if whole is None:
            whole = self._encode(text)
            if _MAX_WORD_LENGTH < len(text) <= _MAX_TEXT_LENGTH:
                if len(self._texts) >= _MAX_TEXTS:
                    self._texts = {}
                self._texts[text] = whole
        return whole

    def _encode(self, text: str) -> list[int]:
        known = self._known
        words = self._words(text)
        try:
            return list(chain.from_iterable(map(known.__getitem__, words)))
        except KeyError:
            return [number for word in words for number in known.get(word) or self._merge(word)]

    def _merge(self, word: str) -> list[int]:
        ids = self._encode_word(word)
        if len(word) <= _MAX_WORD_LENGTH:
            if len(self._known) >= self._max_words:
                self._known = {}
            self._known[word] = ids
        return ids


def word_pattern(definition: Mapping[str, Any]) -> re.Pattern[str] | None:
    """Give the pattern that cuts ASCII text into words as a ``tokenizer.json`` says; None if that is not known."""
    model = definition.get("model") or {}
    normalizer = definition.get("normalizer") or {}
    if model.get("type") != "BPE" or model.get("dropout") or normalizer.get("type") not in _HARMLESS_NORMALIZERS:
        return None
    steps = _steps(definition.get("pre_tokenizer") or {})
    if not steps or any(step is None for step in steps):
        return None
    if steps == [_WORDS]:
        return re.compile(_ASCII_WORDS, re.ASCII)
    if steps == [r"\p{N}", _WORDS]:
        return re.compile(_ASCII_WORDS_AND_DIGITS, re.ASCII)
    return _for_ascii(str(steps[0])) if len(steps) == 1 else None


def _steps(pre_tokenizer: Mapping[str, Any]) -> list[str | None]:
    """Give the patterns of a pre-tokenizer in order, None for a step that is no such pattern."""
    match pre_tokenizer.get("type"):
        case "Sequence":
            return [step for part in pre_tokenizer["pretokenizers"] for step in _steps(part)]
        case "ByteLevel" if not pre_tokenizer.get("add_prefix_space"):
            return [_WORDS] if pre_tokenizer.get("use_regex", True) else []
        case "Digits" if pre_tokenizer.get("individual_digits"):
            return [r"\p{N}"]
        case "Split" if pre_tokenizer.get("behavior") == "Isolated" and not pre_tokenizer.get("invert"):
            return [pre_tokenizer["pattern"].get("Regex")]
        case _:
            return [None]


def _for_ascii(pattern: str) -> re.Pattern[str] | None:
    """Rewrite Unicode classes as the ranges they are on ASCII; None if something else is in the pattern."""
    written: list[str] = []
    inside = False
    for part in re.split(r"(\\p\{\w+\}|\\.|\[|\])", pattern, flags=re.DOTALL):
        if part in _CLASSES:
            written.append(_CLASSES[part] if inside else f"[{_CLASSES[part]}]")
        elif part.startswith((r"\p", r"\P")) or (inside and (part == "[" or _SET_OPERATION.search(part))):
            return None
        else:
            inside = part == "[" or (inside and part != "]")
            written.append(part)
    try:
        return re.compile("".join(written), re.ASCII)
    except re.error:
        return None


def agrees(shortcut: Callable[[str], Sequence[int]], encode: Callable[[str], Sequence[int]]) -> bool:
    """Say whether the shortcut gives what ``encode`` gives, on texts that put every kind of character together."""
    kinds = [" ", "  ", "\n", "\r\n", "\t", "a", "Zq", "7", "42", "'s", "'LL", "'", ".", "(_", "/", "\x00"]
    texts = [f"{a}{b}{c}" for a in kinds for b in kinds for c in kinds]
    return all(list(shortcut(text)) == list(encode(text)) for text in ["".join(texts), *texts[::7]])
