"""Small but real models, without weights: a byte-level BPE trained here, the special tokens and templates of a family.

The templates are written for these tests in the manner of the families they are named after.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentenv.records.messages import Message, Role, ToolSpec
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

TEMPLATES = Path(__file__).parent / "templates"
_CORPUS = [
    'def weather(city: str, days: int = 3) -> dict:\n    """Tell it."""\n    return {"city": city, "days": days}\n',
    "The quick brown fox jumps over the lazy dog. It is 12:45, and 3,000 people wait in line for the 2nd train.\n",
    '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2 + 2"}}\n</tool_call>\nuser assistant tool\n',
    "What is the result? It is 4. I'll say that you're right, we've done it; they'd agree.\n\n\n\tIndented text\n",
    "Grüße aus Köln, 日本語のテキスト, emoji 🙂 and math ∑ x² ≤ 10.\r\nif x == 0:\n        pass\n",
] * 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What makes a family of models."""

    template: str
    special: tuple[str, ...]
    """Added tokens marked special, in the order of their ids; the first is the beginning of text or padding."""
    plain: tuple[str, ...] = ()
    """Added tokens not marked special."""
    eos: str = "<|im_end|>"
    bos: str | None = None
    words: str = "gpt2"
    """How text is cut into words: ``gpt2``, ``digits`` (the same, every digit alone), ``llama3``."""
    generation: dict[str, Any] = field(default_factory=dict)


_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TAGS = ("<tool_call>", "</tool_call>")
_LLAMA = (
    "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>",
    "<|python_tag|>",
)  # fmt: skip
_MISTRAL = (
    "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[ARGS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
)  # fmt: skip
FAMILIES = {
    "qwen25": Family(template="qwen25", special=_CHATML, plain=_TAGS),
    "qwen3": Family(
        template="qwen3", special=_CHATML, plain=(*_TAGS, "<tool_response>", "</tool_response>", "<think>", "</think>")
    ),
    "qwen3_bare": Family(template="qwen3", special=_CHATML),
    "llama3": Family(
        template="llama3", special=_LLAMA, eos="<|eot_id|>", bos="<|begin_of_text|>", words="llama3",
        generation={"eos_token_id": [1, 4, 5]},
    ),
    "mistral": Family(template="mistral", special=_MISTRAL[:9], eos="</s>", bos="<s>"),
    "mistral_named": Family(
        template="mistral_named", special=_MISTRAL, eos="</s>", bos="<s>", words="digits"
    ),
    "pythonic": Family(
        template="pythonic", special=_LLAMA, eos="<|eot_id|>", bos="<|begin_of_text|>", words="llama3"
    ),
    "gemma": Family(
        template="gemma", special=("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"), plain=("   ", "\n\n"),
        eos="<eos>", bos="<bos>",
    ),
}  # fmt: skip


_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def words_of(kind: str) -> pre_tokenizers.PreTokenizer:
    """Build a pre-tokenizer."""
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if kind == "gpt2":
        return gpt2
    if kind == "digits":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    split = pre_tokenizers.Split(Regex(_LLAMA3_WORDS), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train(family: Family) -> Tokenizer:
    """Train a byte-level BPE of some 600 tokens and give it the family's added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = words_of(family.words)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=list(family.special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in family.plain])
    return tokenizer


def save(name: str, folder: Path) -> Path:
    """Write the model directory of a family, as the reference library writes it."""
    from transformers import PreTrainedTokenizerFast

    family = FAMILIES[name]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=train(family), eos_token=family.eos, bos_token=family.bos, clean_up_tokenization_spaces=False
    )
    fast.chat_template = (TEMPLATES / f"{family.template}.jinja").read_text(encoding="utf-8")
    fast.save_pretrained(str(folder))
    if family.generation:
        (folder / "generation_config.json").write_text(json.dumps(family.generation))
    return folder


def reference_chat(messages: list[Message], *, long_ids: bool = False) -> list[dict[str, Any]]:
    """Write messages as the reference library takes them, with nothing of ours in between."""
    chat: list[dict[str, Any]] = []
    for message in messages:
        entry: dict[str, Any] = {"role": message.role.value, "content": message.text}
        if message.calls:
            entry["tool_calls"] = [
                {"type": "function", "id": _id(call.id, long_ids),
                 "function": {"name": call.name, "arguments": call.arguments}}
                for call in message.calls
            ]  # fmt: skip
        if message.role is Role.TOOL and message.call_id is not None:
            entry.update(tool_call_id=_id(message.call_id, long_ids), name=message.name)
        chat.append(entry)
    return chat


def reference_tools(tools: tuple[ToolSpec, ...]) -> list[dict[str, Any]] | None:
    """Write tools as the reference library takes them."""
    return [
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
        for t in tools
    ] or None


def _id(number: str, long: bool) -> str:
    turn, call = number[1:].split("c")
    return f"t{int(turn):05d}c{int(call):02d}" if long else number
