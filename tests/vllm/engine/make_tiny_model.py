"""Make the model the real engine serves in tests: a random Qwen2 of 0.2 million parameters, with its own tokenizer.

    python make_tiny_model.py OUT_DIR [--seed N]

Runs in the engine's environment (torch, transformers, tokenizers). The byte-level BPE of 2,048 tokens is trained on
modules of the standard library, the chat template is ChatML with tools, and the weights come from the seed: the same
interpreter gives the same bytes.
"""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path

VOCAB_SIZE = 2048
WINDOW = 4096
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = [END_OF_TEXT, TURN_START, TURN_END, "<tool_call>", "</tool_call>"]
SOURCES = [
    "argparse",
    "ast",
    "calendar",
    "dataclasses",
    "datetime",
    "difflib",
    "fractions",
    "inspect",
    "pathlib",
    "typing",
]

CHAT_TEMPLATE = r"""
{%- set lead = messages[0].content if messages and messages[0].role == 'system' else '' %}
{%- if tools %}
    {{- '<|im_start|>system\n' + (lead + '\n\n' if lead else '') }}
    {{- 'Tools at hand, one JSON signature per line between the tags:\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' }}{{- tool | tojson }}
    {%- endfor %}
    {{- '\n</tools>\n\nCall a tool by writing one JSON object per call, in this form:\n' }}
    {{- '<tool_call>\n{"name": "NAME", "arguments": {}}\n</tool_call><|im_end|>\n' }}
{%- elif lead %}
    {{- '<|im_start|>system\n' + lead + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
            {%- set function = call.function if call.function else call %}
            {{- '\n<tool_call>\n{"name": "' + function.name + '", "arguments": ' }}
            {{- function.arguments if function.arguments is string else function.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>tool\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}"""


def save_tokenizer(out: Path) -> None:
    """Train the tokenizer and write it with the chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

    library = Path(sysconfig.get_path("stdlib"))
    tokenizer = Tokenizer(models.BPE())
    # transformers loads the tokenizer of a Qwen2 model as this class, whatever tokenizer.json says.
    family = Qwen2Tokenizer().backend_tokenizer
    tokenizer.normalizer = family.normalizer
    tokenizer.pre_tokenizer = family.pre_tokenizer
    tokenizer.decoder = family.decoder
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(library / f"{name}.py") for name in SOURCES], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        model_max_length=WINDOW,
    )
    fast.chat_template = CHAT_TEMPLATE.lstrip()
    fast.save_pretrained(out)
    (out / "config.json").write_text('{"model_type": "qwen2"}')
    sample = (library / "textwrap.py").read_text() + "naïve 0123 <|im_start|>e\u0301<tool_call>\n\n  x"
    loaded = AutoTokenizer.from_pretrained(out).encode(sample, add_special_tokens=False)
    if loaded != Tokenizer.from_file(str(out / "tokenizer.json")).encode(sample, add_special_tokens=False).ids:
        raise SystemExit(f"{out}/tokenizer.json is not what transformers makes of it")


def save_model(out: Path, seed: int) -> None:
    """Write random weights in float32, with the turn end as the end of generation."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=WINDOW,
        tie_word_embeddings=True,
        bos_token_id=SPECIAL.index(END_OF_TEXT),
        eos_token_id=SPECIAL.index(TURN_END),
        pad_token_id=SPECIAL.index(END_OF_TEXT),
    )
    model = Qwen2ForCausalLM(config).to(torch.float32)
    model.generation_config.eos_token_id = [SPECIAL.index(TURN_END)]
    model.save_pretrained(out, safe_serialization=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    save_tokenizer(arguments.out)
    save_model(arguments.out, arguments.seed)


if __name__ == "__main__":
    main()
