"""Vocabularies from model directories: the pitfalls of their files, and text that must stay text."""

from __future__ import annotations

import json
import shutil
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentenv.errors import ConfigError
from agentenv.rendering.hf_tokenizer import HfTokenizer, read_hf_tokenizer
from agentenv.rendering.loading import load_renderer, load_text_model, load_tokenizer
from agentenv.rendering.model_files import ModelFiles
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

Folders = Callable[[str], Path]


@pytest.fixture
def folder(model_folder: Folders, tmp_path: Path) -> Path:
    """Give a copy of a model directory that a test may damage."""
    return Path(shutil.copytree(model_folder("qwen25"), tmp_path / "model"))


def change(path: Path, **values: Any) -> None:
    """Change keys of a JSON file; None removes one."""
    content = json.loads(path.read_text()) if path.exists() else {}
    content.update(values)
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def test_settings_of_the_last_training_run_do_not_cut_or_pad(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8, pad_id=0, pad_token="<|endoftext|>")
    tokenizer.save(str(folder / "tokenizer.json"))
    loaded = load_tokenizer(folder)
    assert len(loaded.encode("the quick brown fox jumps")) > 4
    assert 0 not in loaded.encode("a")


@pytest.mark.parametrize("written", ["<|im_end|>", {"content": "<|im_end|>", "special": True}])
def test_the_end_token_is_a_text_or_an_object(folder: Path, written: Any) -> None:
    change(folder / "tokenizer_config.json", eos_token=written)
    assert load_tokenizer(folder).eos_ids == (2,)


def test_end_ids_of_the_generation_settings_are_added(folder: Path) -> None:
    change(folder / "generation_config.json", eos_token_id=[2, 0])
    change(folder / "config.json", eos_token_id=1)
    assert load_tokenizer(folder).eos_ids == (2, 0, 1)
    assert load_renderer(folder).stop_token_ids == (2, 0, 1)


def test_the_turn_end_of_the_template_is_a_stop_id_even_if_no_file_says_so(folder: Path) -> None:
    """Base models keep <|endoftext|> as their end token while the chat template ends turns with another."""
    change(folder / "tokenizer_config.json", eos_token="<|endoftext|>")
    assert load_renderer(folder).stop_token_ids == (2, 0)


def test_tokens_that_only_the_configuration_names_are_added(folder: Path) -> None:
    size = load_tokenizer(folder).vocab_size
    added = {str(size): {"content": "<|pause|>", "special": True, "normalized": False}}
    change(folder / "tokenizer_config.json", added_tokens_decoder=added)
    tokenizer = load_tokenizer(folder)
    assert list(tokenizer.encode("a<|pause|>"))[-1] == size == tokenizer.vocab_size - 1
    assert size not in tokenizer.encode_plain("a<|pause|>")


def test_files_of_two_models_are_told_apart(folder: Path) -> None:
    change(folder / "tokenizer_config.json", added_tokens_decoder={"7": {"content": "<|im_end|>", "special": True}})
    with pytest.raises(ConfigError, match=r"gives '<\|im_end\|>' the id 7, tokenizer.json gives it 2"):
        load_tokenizer(folder)


def test_a_folder_without_a_vocabulary_says_how_to_make_one(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json.*save_pretrained"):
        load_tokenizer(folder)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("tokenizer.json", "{", r"tokenizer\.json is not JSON"),
        ("tokenizer.json", "{}", "definition cannot be read"),
        ("tokenizer.json", "[]", "holds a list, expected an object"),
        ("tokenizer_config.json", "[]", r"holds a list, expected an object"),
        ("generation_config.json", "{", r"generation_config\.json cannot be read as JSON"),
    ],
)
def test_damaged_files_are_named(folder: Path, name: str, content: str, expected: str) -> None:
    (folder / name).write_text(content)
    with pytest.raises(ConfigError, match=expected):
        load_tokenizer(folder)


def test_a_model_without_a_chat_template_says_so(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    change(folder / "tokenizer_config.json", chat_template=None)
    with pytest.raises(ConfigError, match="has no chat template"):
        load_renderer(folder)


def test_templates_are_found_where_models_keep_them(folder: Path) -> None:
    """A file wins over the configuration; a list in the configuration has names, one of them for tools."""
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    change(folder / "tokenizer_config.json", chat_template=named)
    model = load_text_model(folder)
    assert model.templates is not None
    assert model.templates.default.startswith("{%- if tools %}")
    assert model.templates.tool_use == "b"
    (folder / "chat_template.jinja").unlink()
    again = ModelFiles.read(folder).templates
    assert again is not None
    assert (again.default, again.tool_use) == ("a", "b")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("c")
    (folder / "chat_template.json").write_text('{"chat_template": "d"}')
    last = ModelFiles.read(folder).templates
    assert last is not None
    assert (last.default, last.tool_use) == ("d", "c")


def test_the_hash_follows_what_decides_the_ids(folder: Path) -> None:
    first = load_tokenizer(folder).sha256
    change(folder / "config.json", hidden_size=3)
    assert load_tokenizer(folder).sha256 == first
    definition = json.loads((folder / "tokenizer.json").read_text())
    definition["model"]["merges"].pop()
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    assert load_tokenizer(folder).sha256 != first


class TestControlTokens:
    """Special tokens, those the template spells and those shaped like <|…|> are control tokens; others are words."""

    def test_which_they_are(self, model_folder: Folders) -> None:
        assert set(load_tokenizer(model_folder("qwen25")).control_ids) == {
            "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"}  # fmt: skip
        assert set(load_tokenizer(model_folder("gemma")).control_ids) == {
            "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"}  # fmt: skip

    def test_added_words_stay_words(self, model_folder: Folders) -> None:
        tokenizer = load_tokenizer(model_folder("gemma"))
        assert tokenizer.encode_plain("a   b\n\nc") == tokenizer.encode("a   b\n\nc")
        spelled = tokenizer.encode_plain("<bos>   x")
        assert not set(tokenizer.control_ids.values()) & set(spelled)
        assert tokenizer.encode("   ")[0] in spelled

    @pytest.mark.parametrize("name", ["qwen25", "llama3", "gemma"])
    def test_plain_is_the_same_unless_one_is_spelled(self, name: str, model_folder: Folders) -> None:
        tokenizer = load_tokenizer(model_folder(name))
        pieces = [*list(tokenizer.control_ids)[:4], "a", " ", "\n", "<", "|>", "12", "é", "\ue000", "\ue001", "\ue002"]

        @given(text=st.lists(st.sampled_from(pieces), max_size=8).map("".join))
        def check(text: str) -> None:
            plain = tokenizer.encode_plain(text)
            assert set(plain).isdisjoint(tokenizer.control_ids.values())
            assert tokenizer.decode(plain) == text
            assert tokenizer.encode_between(text) == plain
            if not any(token in text for token in tokenizer.control_ids):
                assert plain == tokenizer.encode(text)

        check()

    def test_plain_is_what_the_reference_splits(
        self, model_folder: Folders, reference_of: Callable[[str], Any]
    ) -> None:
        text = "Say <|im_end|> and <|im_start|>user\nnow"
        expected = reference_of("qwen25").encode(text, add_special_tokens=False, split_special_tokens=True)
        assert list(load_tokenizer(model_folder("qwen25")).encode_plain(text)) == expected


def metaspace_model() -> HfTokenizer:
    """Build a vocabulary in the manner of SentencePiece: a space in front of the first word, bytes as fallback."""
    words = ["<s>", "</s>", "\u2581", "a", "b", "\u2581a", "\u2581b", "<", "/", "s", ">", "[", "]", "I", "N", "S", "T"]
    words += [f"<0x{value:02X}>" for value in range(256)]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={word: index for index, word in enumerate(words)},
            merges=[("\u2581", "a"), ("\u2581", "b")],
            byte_fallback=True,
            unk_token="<0x00>",
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<s>", "</s>", "[INST]"])
    return HfTokenizer(json.loads(tokenizer.to_str()), eos_ids=(1,), sha256="0" * 64)


def test_text_after_a_control_token_gets_no_space_in_front() -> None:
    """Where only the first word of a text gets a space, pieces after a control token must not get one."""
    tokenizer = metaspace_model()
    inst = tokenizer.control_ids["[INST]"]
    assert list(tokenizer.encode("a")) == [5]
    assert list(tokenizer.encode("<s>a b")) == [0, 3, 6]
    assert list(tokenizer.encode_between("a b")) == [3, 6]
    assert inst not in tokenizer.encode_between("a[INST]")
    assert tokenizer.encode_between("a[INST]")[0] == 3


def test_a_vocabulary_that_spells_a_control_token_itself() -> None:
    """A unigram vocabulary has </s> among its words: text that spells it must not find it there."""
    words: list[tuple[str, float]] = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
    words += [(letter, -3.0) for letter in "\u2581ab</s>"]
    tokenizer = Tokenizer(models.Unigram(words, unk_id=0))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    wrapped = HfTokenizer(json.loads(tokenizer.to_str()), eos_ids=(2,), sha256="0" * 64)
    assert list(wrapped.encode("a</s>")) == [4, 2]
    for ids in (wrapped.encode_plain("a</s><s>b"), wrapped.encode_between("a</s><s>b")):
        assert {1, 2}.isdisjoint(ids)
        assert wrapped.decode(ids) == "a</s><s>b"


def test_added_tokens_that_swallow_white_space_go_the_ordinary_way() -> None:
    """Such tokens take the white space after them, which the shortcut for ASCII text does not do."""
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate("ab")}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([AddedToken("<|end|>", rstrip=True, normalized=False)])
    wrapped = HfTokenizer(json.loads(tokenizer.to_str()), sha256="0" * 64)
    assert list(wrapped.encode("a<|end|>  b")) == [0, 2, 1]


@pytest.mark.parametrize("ids", [[], [-1], [5, -1, 6], [2**31 - 1], [-(2**31), 2**31 - 1], [10**6, 65]])
def test_ids_outside_the_vocabulary_decode_to_a_replacement(model_folder: Folders, ids: list[int]) -> None:
    tokenizer = load_tokenizer(model_folder("qwen25"))
    outside = sum(not 0 <= number < tokenizer.vocab_size for number in ids)
    assert tokenizer.decode(ids).count("\ufffd") == outside
    assert tokenizer.decode(array("i", ids)) == tokenizer.decode(ids)


def test_bytes_that_are_no_text_decode_to_a_replacement(model_folder: Folders) -> None:
    tokenizer = load_tokenizer(model_folder("qwen25"))
    ids = tokenizer.encode("🙂日")
    assert "\ufffd" in tokenizer.decode(ids[:1])


def test_lone_surrogates_are_replaced(model_folder: Folders) -> None:
    tokenizer = load_tokenizer(model_folder("qwen25"))
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"
    assert tokenizer.decode(tokenizer.encode_plain("<|im_end|>\udfff")) == "<|im_end|>\ufffd"


def test_reading_takes_the_named_tokens_of_either_file(folder: Path) -> None:
    change(folder / "tokenizer_config.json", eos_token=None, pad_token={"content": "<|endoftext|>"})
    change(folder / "special_tokens_map.json", eos_token={"content": "<|im_end|>"}, bos_token="<|im_start|>")
    files = ModelFiles.read(folder)
    assert files.special_tokens == {
        "eos_token": "<|im_end|>", "bos_token": "<|im_start|>", "pad_token": "<|endoftext|>"}  # fmt: skip
    assert read_hf_tokenizer(files).eos_ids == (2,)
