"""Decoding of byte-level vocabularies gives the text that the library gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from agentenv.rendering.hf_tokenizer import HfTokenizer
from agentenv.rendering.loading import load_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

FAMILIES = ["qwen25", "llama3", "mistral_named", "gemma"]


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_are_those_of_the_library(name: str, model_folder: Callable[[str], Path]) -> None:
    """Any ids: control tokens, characters cut in two, bytes that are no UTF-8."""
    library = Tokenizer.from_file(str(model_folder(name) / "tokenizer.json"))
    ours = load_tokenizer(model_folder(name))

    @given(ids=st.lists(st.integers(0, ours.vocab_size - 1), max_size=40))
    def check(ids: list[int]) -> None:
        assert ours.decode(ids) == library.decode(ids, skip_special_tokens=False)

    check()


@given(data=st.binary(max_size=40))
def test_any_bytes(data: bytes, byte_vocabulary: HfTokenizer) -> None:
    """Every way of being no UTF-8 gives as many replacement characters as in the library."""
    ids = [byte_vocabulary.token_id(_character(byte)) for byte in data]
    assert None not in ids
    known = [number for number in ids if number is not None]
    assert byte_vocabulary.decode(known) == byte_vocabulary._decode(known)


@pytest.fixture(scope="module")
def byte_vocabulary(model_folder: Callable[[str], Path]) -> HfTokenizer:
    made = load_tokenizer(model_folder("qwen25"))
    assert isinstance(made, HfTokenizer)
    return made


def _character(byte: int) -> str:
    """Write a byte as the library's own pre-tokenizer does."""
    printed = (*range(33, 127), *range(161, 173), *range(174, 256))
    others = [other for other in range(256) if other not in printed]
    return chr(byte) if byte in printed else chr(256 + others.index(byte))


def test_added_tokens_with_characters_of_their_own(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    """Tokens in the alphabet of bytes are read as bytes, as the library does; others stand for themselves."""
    library = Tokenizer.from_file(str(model_folder("qwen25") / "tokenizer.json"))
    added = ["<é>", "<\u0120>", "<日本>", "<|a b|>"]
    library.add_tokens([AddedToken(token, normalized=False, special=True) for token in added])
    library.save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(tmp_path)
    for token in added:
        ids = [library.token_to_id("a"), library.token_to_id(token), library.token_to_id("b")]
        assert ours.decode(ids) == library.decode(ids, skip_special_tokens=False)


def test_ids_out_of_the_vocabulary_become_replacement_characters(byte_vocabulary: HfTokenizer) -> None:
    a, beyond = byte_vocabulary.encode("a")[0], byte_vocabulary.vocab_size
    assert byte_vocabulary.decode([a, -1, a, beyond, beyond + 9, a]) == "a\ufffda\ufffd\ufffda"
    assert byte_vocabulary.decode([]) == ""
