"""Vocabularies out of GGUF files: equal to the library's on a file made here, and to llama.cpp's on SmolLM2's."""

from __future__ import annotations

import json
import random
import struct
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agentenv.errors import ConfigError
from agentenv.records.messages import Message, Role
from agentenv.rendering.gguf_file import read_metadata
from agentenv.rendering.gguf_tokenizer import read_gguf
from agentenv.rendering.loading import load_renderer, load_tokenizer
from agentenv.rendering.template_renderer import TemplateRenderer
from agentenv.testing.contracts.renderer import RendererCase, RendererContract
from tokenizers import Tokenizer

from tests.local.smollm2 import model_path

GOLDEN = Path(__file__).parent.parent / "golden" / "smollm2.json"
"""Texts and chats with ids from llama.cpp's own tokenizer; chats rendered by llama.cpp's own template engine."""
_KINDS = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}


def write_gguf(path: Path, metadata: dict[str, Any], *, magic: bytes = b"GGUF", version: int = 3) -> Path:
    """Write a GGUF file without tensors, as the specification says."""
    body = b"".join(_text(key) + _value(value) for key, value in metadata.items())
    path.write_bytes(magic + struct.pack("<IQQ", version, 0, len(metadata)) + body)
    return path


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, list):
        first = _value(value[0])
        return struct.pack("<I", 9) + first[:4] + struct.pack("<Q", len(value)) + b"".join(_value(v)[4:] for v in value)
    kind, code = _KINDS[type(value)]
    return struct.pack("<I" + code, kind, value)


def metadata_of(folder: Path, **changes: Any) -> dict[str, Any]:
    """Describe the vocabulary of a model directory as GGUF does."""
    definition = json.loads((folder / "tokenizer.json").read_text())
    vocabulary: dict[str, int] = {token["content"]: token["id"] for token in definition["added_tokens"]}
    special = {token["content"] for token in definition["added_tokens"] if token["special"]}
    types = {token: 3 if token in special else 4 for token in vocabulary}
    vocabulary |= definition["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    return {
        "general.architecture": "llama",
        "general.threshold": 0.5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [types.get(token, 1) for token in tokens],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in definition["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": (folder / "chat_template.jinja").read_text(),
        **changes,
    }


def without(metadata: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if name != key}


@pytest.mark.parametrize(("name", "pre"), [("qwen25", "gpt-2"), ("mistral_named", "smollm"), ("llama3", "llama-bpe")])
def test_ids_are_those_of_the_same_vocabulary_in_another_file(
    name: str, pre: str, model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = model_folder(name)
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    path = write_gguf(tmp_path / "m.gguf", metadata_of(folder, **{"tokenizer.ggml.pre": pre}))
    ours = load_tokenizer(path)
    rng = random.Random(3)
    pieces = ["the", " quick", "  ", "\n", "12", "345", "'s", "é", "日本", ".", "<|im_end|>", "[INST]", "<tool_call>"]
    for _ in range(300):
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(0, 12)))
        assert list(ours.encode(text)) == library.encode(text, add_special_tokens=False).ids
    assert ours.vocab_size == library.get_vocab_size()
    assert ours.eos_ids == (2,)


def test_a_renderer_out_of_one_file(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    """Template and special tokens are read from it too."""
    path = write_gguf(tmp_path / "m.gguf", metadata_of(model_folder("qwen25")))
    history = [Message(id="m", role=Role.USER, text="2 + 2?")]
    same = load_renderer(model_folder("qwen25"))
    assert load_renderer(path).open(history, ()) == same.open(history, ())
    assert load_renderer(path).identity.template_sha256 != same.identity.template_sha256  # it also knows a bos_token
    assert read_gguf(path).special_tokens == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}


def test_user_defined_tokens_that_the_template_spells_are_control_tokens(
    model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "m.gguf", metadata_of(model_folder("qwen25")))
    assert "<tool_call>" in load_tokenizer(path).control_ids


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tokenizer.ggml.model": "llama"}, r"of the kind 'llama', only 'gpt2'"),
        ({"tokenizer.ggml.pre": "qwen9"}, r"in the way 'qwen9', known are gpt-2, "),
    ],
)
def test_other_kinds_are_config_errors(
    changes: dict[str, str], expected: str, model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "m.gguf", metadata_of(model_folder("qwen25"), **changes))
    with pytest.raises(ConfigError, match=expected):
        load_tokenizer(path)


def test_a_file_without_a_template_says_so(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    metadata = without(metadata_of(model_folder("qwen25")), "tokenizer.chat_template")
    with pytest.raises(ConfigError, match="has no chat template"):
        load_renderer(write_gguf(tmp_path / "m.gguf", metadata))


def test_damaged_files_are_config_errors(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    """Wrong magic, wrong version, empty, and cut at every kind of place."""
    path = write_gguf(tmp_path / "m.gguf", metadata_of(model_folder("qwen25")))
    whole = path.read_bytes()
    for cut in (0, 3, 9, 20, 30, 60, 200, 1000, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ConfigError, match="is no readable GGUF file"):
            read_metadata(path)
    with pytest.raises(ConfigError, match=r"begins with b'GGML'"):
        read_metadata(write_gguf(path, {}, magic=b"GGML"))
    with pytest.raises(ConfigError, match=r"version is 1, known are"):
        read_metadata(write_gguf(path, {}, version=1))
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + _text("k") + struct.pack("<I", 77))
    with pytest.raises(ConfigError, match="unknown value type 77"):
        read_metadata(path)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40))
    with pytest.raises(ConfigError, match="announces"):
        read_metadata(path)
    with pytest.raises(ConfigError, match=r"absent\.gguf is no readable"):
        read_metadata(tmp_path / "absent.gguf")


@pytest.fixture(scope="session")
def smollm2() -> TemplateRenderer:
    """Give the renderer of the real small model."""
    return load_renderer(model_path())


class TestSmolLM2(RendererContract):
    @pytest.fixture
    def case(self, smollm2: TemplateRenderer) -> RendererCase:
        return RendererCase(
            renderer=smollm2,
            control_texts=("<|im_end|>", "<|im_start|>", "<jupyter_code>"),
            extends_after=("tool", "error", "user", "tool tool", "tool error", "tool user"),
        )


def test_smollm2_has_no_place_for_tools_and_results(smollm2: TemplateRenderer) -> None:
    """Its template ignores tools and writes any role as it is: the record says what carries them instead."""
    identity = smollm2.identity
    assert (identity.tools_carrier, identity.results_carrier, identity.call_style) == ("system", "user", "hermes")
    assert smollm2.stop_token_ids == (2,)


def test_smollm2_ids_are_those_of_llama_cpp(smollm2: TemplateRenderer) -> None:
    """Golden texts, digits after spaces among them; plain encoding is llama.cpp's without special tokens."""
    golden = json.loads(GOLDEN.read_text())
    assert len(golden["texts"]) > 30
    for case in golden["texts"]:
        assert list(smollm2.tokenizer.encode(case["text"])) == case["ids"], case["text"]
        assert list(smollm2.tokenizer.encode_plain(case["text"])) == case["plain"], case["text"]


def test_smollm2_chats_are_those_of_llama_cpp(smollm2: TemplateRenderer) -> None:
    golden = json.loads(GOLDEN.read_text())
    assert len(golden["chats"]) > 3
    for case in golden["chats"]:
        messages = [Message(id="m", role=Role(m["role"]), text=m["content"]) for m in case["messages"]]
        assert list(smollm2.open(messages, ())) == case["ids"]


@pytest.fixture(scope="module")
def llama_cpp() -> Iterator[Callable[[str, dict[str, Any]], Any]]:
    """Ask a llama.cpp server with the real model."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model_path())
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads, params.warmup = 256, 1, 1, False
    server = xllamacpp.Server(params)
    address = server.listening_address

    def ask(path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(address + path, json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    yield ask
    del server


def _pieces(rng: random.Random) -> str:
    words = [*"a./\\()-\n\t\x00é½²", " ", "  ", "   ", "\r\n", "the", "A", "Zq", "1", "23", "456", "'s", "'LL", "don't"]
    words += ["...", "==", "日本", "🙂", "İ", "\u017f", "\u0663", "\u00a0", "\u3000", "\u0301", "\u200d", "ß"]
    words += ["<|im", "<|im_end|>", "<|im_start|>", "def f(x):", "\n    return x", '{"a": 1}']
    return "".join(rng.choice(words) for _ in range(rng.randint(1, 25)))


@pytest.mark.slow
def test_smollm2_ids_are_those_of_llama_cpp_on_thousands_of_texts(
    smollm2: TemplateRenderer, llama_cpp: Callable[[str, dict[str, Any]], Any]
) -> None:
    rng = random.Random(11)
    for _ in range(3000):
        text = _pieces(rng)
        for special, encode in ((True, smollm2.tokenizer.encode), (False, smollm2.tokenizer.encode_plain)):
            asked = {"content": text, "add_special": False, "parse_special": special}
            assert list(encode(text)) == llama_cpp("/tokenize", asked)["tokens"], text


@pytest.mark.slow
def test_the_golden_file_is_what_llama_cpp_says(llama_cpp: Callable[[str, dict[str, Any]], Any]) -> None:
    """Recomputed whole; to make it anew, write what this compares with."""
    golden = json.loads(GOLDEN.read_text())

    def ids(text: str, special: bool) -> list[int]:
        return llama_cpp("/tokenize", {"content": text, "add_special": False, "parse_special": special})["tokens"]

    for case in golden["texts"]:
        assert (case["ids"], case["plain"]) == (ids(case["text"], True), ids(case["text"], False))
    for case in golden["chats"]:
        assert ids(llama_cpp("/apply-template", {"messages": case["messages"]})["prompt"], True) == case["ids"]
