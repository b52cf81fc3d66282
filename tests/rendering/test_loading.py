"""Where tokenizers and renderers come from, and what is said when they cannot be had."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from agentenv.errors import ConfigError, UnknownNameError
from agentenv.records.messages import Message, Role
from agentenv.rendering.byte_tokenizer import ByteTokenizer
from agentenv.rendering.loading import load_renderer, load_tokenizer
from agentenv.rendering.tiktoken_tokenizer import TiktokenTokenizer
from agentenv.testing.contracts.renderer import RendererCase, RendererContract
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer


@pytest.mark.parametrize("source", ["no/such/folder", "./nowhere", "nowhere", "/no/where", "owner/"])
def test_what_is_neither_a_path_nor_a_hub_id(source: str) -> None:
    with pytest.raises(ConfigError, match=r"does not exist: expected a model directory, a \.gguf file, a hub id"):
        load_tokenizer(source)


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The hub client runs for real, against an address where nobody listens."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        ConfigError, match=r"owner/model is no local path, and the hub does not give it: .*local directory"
    ):
        load_tokenizer("owner/model")


def test_a_hub_id_that_the_hub_gives(monkeypatch: pytest.MonkeyPatch, model_folder: Callable[[str], Path]) -> None:
    """Only small files are asked for."""
    import huggingface_hub

    asked: list[tuple[str, list[str]]] = []

    def snapshot(name: str, *, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(model_folder("qwen25"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert load_tokenizer("owner/model").sha256 == load_tokenizer(model_folder("qwen25")).sha256
    assert asked[0][0] == "owner/model"
    assert not any("safetensors" in pattern or pattern == "*" for pattern in asked[0][1])


def test_a_hub_id_without_the_hub_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match="hub ids need huggingface_hub"):
        load_tokenizer("owner/model")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, model_folder: Callable[[str], Path]) -> Path:
    """Write a small table of an OpenAI vocabulary: the bytes first, then longer and longer pieces of words."""
    library = Tokenizer.from_file(str(model_folder("llama3") / "tokenizer.json"))
    words = sorted(token for token in library.get_vocab(with_added_tokens=False) if token.isascii() and len(token) > 1)
    pieces = {bytes([value]) for value in range(256)}
    pieces |= {word[:size].encode() for word in words for size in range(2, len(word) + 1)}
    ordered = sorted(pieces, key=lambda piece: (len(piece), piece))
    path = tmp_path_factory.mktemp("tiktoken") / "small.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(piece) + b" %d\n" % rank for rank, piece in enumerate(ordered)))
    return path


class TestOpenAI(RendererContract):
    @pytest.fixture
    def case(self, table: Path) -> RendererCase:
        return RendererCase(
            renderer=load_renderer(f"tiktoken:cl100k_base:{table}"),
            control_texts=("<|im_end|>", "<|endoftext|>", "<|fim_prefix|>"),
            extends_after=("tool", "error", "user", "tool tool"),
        )


@pytest.mark.parametrize("kind", ["cl100k_base", "o200k_base", "p50k_base", "r50k_base"])
def test_every_text_comes_back(kind: str, table: Path) -> None:
    tokenizer = TiktokenTokenizer.from_file(table, kind=kind)

    @given(text=st.text(max_size=40))
    def check(text: str) -> None:
        assert tokenizer.decode(tokenizer.encode_plain(text)) == text
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.encode_between(text) == tokenizer.encode_plain(text)

    check()


@pytest.mark.parametrize(
    ("kind", "text", "pieces"),
    [
        ("cl100k_base", "12345 it's\n\n  x", ["123", "45", " it", "'s", "\n\n", " ", " x"]),
        ("r50k_base", "12345 it's\n\n  x", ["12345", " it", "'s", "\n\n ", " x"]),
        ("o200k_base", "HelloWorld it's 12345", ["Hello", "World", " it's", " ", "123", "45"]),
    ],
)
def test_text_is_cut_as_the_vocabulary_demands(kind: str, text: str, pieces: list[str], table: Path) -> None:
    """No merge crosses a cut, so encoding each piece alone gives the same ids."""
    tokenizer = TiktokenTokenizer.from_file(table, kind=kind)
    assert list(tokenizer.encode(text)) == [number for piece in pieces for number in tokenizer.encode(piece)]


def test_a_vocabulary_of_another_kind_has_another_hash(table: Path) -> None:
    kinds = ("cl100k_base", "o200k_base")
    assert len({TiktokenTokenizer.from_file(table, kind=kind).sha256 for kind in kinds}) == 2


def test_chat_tokens_come_after_the_vocabulary(table: Path) -> None:
    tokenizer = TiktokenTokenizer.from_file(table, kind="cl100k_base")
    assert (tokenizer.control_ids["<|im_start|>"], tokenizer.vocab_size) == (100277, 100279)
    assert tokenizer.decode([100278, -1, 50000, 2**40]) == "<|im_end|>\ufffd\ufffd\ufffd"
    renderer = load_renderer(f"tiktoken:cl100k_base:{table}")
    assert renderer.stop_token_ids == (100278, 100257)
    text = renderer.tokenizer.decode(renderer.open([Message(id="m", role=Role.USER, text="Hi")], ()))
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"QQ==\n", "line 1: expected a token in base64 and its rank"),
        (b"QQ== 1\n!! 2\n", "line 2: expected a token in base64"),
        (b"QQ== 1\n", "lacks 255 of the 256 single bytes"),
        (b"".join(base64.b64encode(bytes([v])) + b" %d\n" % (v + 100200) for v in range(256)), "no cl100k_base table"),
    ],
)
def test_a_file_that_is_no_table(content: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ConfigError, match=expected):
        TiktokenTokenizer.from_file(tmp_path / "x", kind="cl100k_base")


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tokenizer(f"tiktoken:cl100k_base:{tmp_path / 'absent'}")


def test_an_unknown_openai_vocabulary_is_named(table: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'cl100k_base'"):
        load_tokenizer("tiktoken:cl100k")
    with pytest.raises(UnknownNameError, match="Did you mean 'o200k_base'"):
        load_tokenizer(f"tiktoken:o200k:{table}")


def test_a_table_that_cannot_be_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The library runs for real, through a proxy where nobody listens."""
    import tiktoken.registry

    monkeypatch.delitem(tiktoken.registry.ENCODINGS, "cl100k_base", raising=False)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"table of cl100k_base is not cached and cannot be downloaded.*from_file"):
        load_tokenizer("tiktoken:cl100k_base")


def test_openai_vocabularies_without_tiktoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(ConfigError, match="pip install tiktoken"):
        load_tokenizer("tiktoken:cl100k_base")


@given(text=st.text(max_size=30))
def test_bytes_are_their_own_ids(text: str) -> None:
    tokenizer = ByteTokenizer()
    assert bytes(list(tokenizer.encode_plain(text))) == text.encode()
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_bytes_of_a_lone_surrogate_are_a_replacement() -> None:
    assert ByteTokenizer().decode(ByteTokenizer().encode("a\ud800b")) == "a\ufffdb"
