"""The shortcut for ASCII text gives the ids of the library, or is not taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from agentenv.rendering.hf_tokenizer import HfTokenizer
from agentenv.rendering.loading import load_tokenizer
from agentenv.rendering.word_cache import WordCache, word_pattern
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

ascii_texts = st.text(st.characters(codec="ascii"), max_size=60) | st.lists(
    st.sampled_from(["a", "B", " ", "  ", "\n", "\r\n", "\t", "1", "234", "'s", "'S", "'", "ll", ".", "(", "_"])
    | st.sampled_from(["\x1c", "\x0b", "<|im_end|>", "<|im", "</s>", "the ", "\x7f", "\x00", "|>"]),
    max_size=30,
).map("".join)  # fmt: skip


@pytest.mark.parametrize("name", ["qwen25", "llama3", "mistral_named", "gemma"])
def test_ids_are_those_of_the_library(name: str, model_folder: Callable[[str], Path]) -> None:
    """For each way of cutting words: any ASCII text, control tokens included, has the library's ids."""
    library = Tokenizer.from_file(str(model_folder(name) / "tokenizer.json"))
    ours = load_tokenizer(model_folder(name))
    assert isinstance(ours, HfTokenizer)
    assert ours.is_fast

    @given(text=ascii_texts)
    def check(text: str) -> None:
        assert list(ours.encode(text)) == library.encode(text, add_special_tokens=False).ids

    check()


def test_words_are_remembered_up_to_a_bound() -> None:
    """Words and their ids are kept; when there are too many, all are forgotten; long words never are kept."""
    asked: list[str] = []

    def encode(word: str) -> list[int]:
        asked.append(word)
        return [len(word)]

    pattern = word_pattern(
        {"model": {"type": "BPE"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}
    )
    assert pattern is not None
    cache = WordCache(pattern, encode, max_words=2)
    assert cache.encode("one two") == cache.encode("one two") == [3, 4]
    assert asked == ["one", " two"]
    assert cache.encode("three") == [5]
    assert cache.encode("one") == [3]
    assert asked == ["one", " two", "three", "one"]
    long = "y" * 100
    assert [cache.encode(f"{long} {end}") for end in "ab"] == [[100, 2], [100, 2]]
    assert asked[4:] == [long, " a", long, " b"]


class Words:
    """Stands for a pattern, and writes down which texts were cut into words."""

    def __init__(self) -> None:
        self.cut: list[str] = []

    def findall(self, text: str) -> list[str]:
        self.cut.append(text)
        return text.split()


def test_texts_are_remembered_whole_up_to_a_bound() -> None:
    """A text that comes again is looked up, not cut again, unless it is very long."""
    words = Words()
    cache = WordCache(words, lambda word: [len(word)])  # type: ignore[arg-type]
    for text, cuts in (("a bc " * 50, 1), ("a bc", 2), ("a bc " * 5000, 2)):
        assert cache.encode(text) == cache.encode(text) == [len(word) for word in text.split()]
        assert words.cut == [text] * cuts
        words.cut.clear()
    for number in range(1000):
        assert cache.encode(f"{number:04} " * 20) == [4] * 20


def split(pattern: dict[str, str], behavior: str = "Isolated") -> dict[str, object]:
    return {"type": "Split", "pattern": pattern, "behavior": behavior}


@pytest.mark.parametrize(
    "definition",
    [
        {"model": {"type": "Unigram"}},
        {"model": {"type": "BPE", "dropout": 0.1}},
        {"model": {"type": "BPE"}, "normalizer": {"type": "Lowercase"}},
        {"model": {"type": "BPE"}, "pre_tokenizer": None},
        {"model": {"type": "BPE"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}},
        {"model": {"type": "BPE"}, "pre_tokenizer": {"type": "Metaspace"}},
        {"model": {"type": "BPE"}, "pre_tokenizer": split({"Regex": r"\p{Han}+"})},
        {"model": {"type": "BPE"}, "pre_tokenizer": split({"String": " "})},
        {"model": {"type": "BPE"}, "pre_tokenizer": split({"Regex": "(?<x"})},
        {"model": {"type": "BPE"}, "pre_tokenizer": split({"Regex": "[a&&b]"})},
        {"model": {"type": "BPE"}, "pre_tokenizer": split({"Regex": " "}, "Removed")},
        {"model": {"type": "BPE"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, split({"Regex": "a"})]}},
    ],
)  # fmt: skip
def test_what_is_not_known_goes_the_ordinary_way(definition: dict[str, object]) -> None:
    assert word_pattern(definition) is None


def test_a_pattern_that_proves_wrong_is_not_used(model_folder: Callable[[str], Path]) -> None:
    """Building compares the shortcut with the library; a difference switches it off."""
    definition = json.loads((model_folder("qwen25") / "tokenizer.json").read_text())
    definition["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "[^\n]+"}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ],
    }
    tokenizer = HfTokenizer(definition, sha256="0" * 64)
    assert not tokenizer.is_fast
    library = Tokenizer.from_str(json.dumps(definition))
    text = "any text\n\nat all, <|im_end|> and 12"
    assert list(tokenizer.encode(text)) == library.encode(text, add_special_tokens=False).ids
