"""From a model directory, a GGUF file or a hub id to a tokenizer or a renderer: the entry of this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from agentenv.errors import ConfigError, ended
from agentenv.rendering.byte_tokenizer import ByteTokenizer
from agentenv.rendering.chat_template import ChatTemplate
from agentenv.rendering.control_text import ControlTokenizer
from agentenv.rendering.gguf_tokenizer import read_gguf
from agentenv.rendering.hf_tokenizer import read_hf_tokenizer
from agentenv.rendering.model_files import ModelFiles, Templates
from agentenv.rendering.template_renderer import TemplateRenderer
from agentenv.rendering.tiktoken_tokenizer import TiktokenTokenizer

_TIKTOKEN = "tiktoken:"
_HUB_PATTERNS = [
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "config.json",
    "chat_template.jinja", "chat_template.json", "additional_chat_templates/*.jinja",
]  # fmt: skip
"""All that is fetched from a hub: never weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """The part of a model that has to do with text."""

    tokenizer: ControlTokenizer
    special_tokens: Mapping[str, str]
    """``bos_token``, ``eos_token`` and so on: templates read them."""
    templates: Templates | None


def load_text_model(source: str | Path) -> TextModel:
    """Load tokenizer, special tokens and chat template.

    Args:
        source: A model directory, a ``.gguf`` file, a hub id (``owner/name``, needs ``huggingface_hub``), or an OpenAI
            vocabulary: ``tiktoken:NAME``, and without a network ``tiktoken:NAME:FILE``.

    Raises:
        ConfigError: It is none of them, or files are missing or damaged.
        UnknownNameError: There is no such OpenAI vocabulary.
    """
    if str(source).startswith(_TIKTOKEN):
        return _openai(str(source).removeprefix(_TIKTOKEN))
    path = Path(source).expanduser()
    if path.is_file():
        model = read_gguf(path)
        return TextModel(tokenizer=model.tokenizer, special_tokens=model.special_tokens, templates=model.templates)
    files = ModelFiles.read(path if path.is_dir() else _from_hub(str(source)))
    return TextModel(tokenizer=read_hf_tokenizer(files), special_tokens=files.special_tokens, templates=files.templates)


def _openai(source: str) -> TextModel:
    """Load an OpenAI vocabulary, with ChatML for want of a public template."""
    name, _, file = source.partition(":")
    tokenizer = TiktokenTokenizer.from_file(Path(file), kind=name) if file else TiktokenTokenizer.named(name)
    return TextModel(tokenizer=tokenizer, special_tokens={}, templates=Templates(default=CHATML))


def load_tokenizer(source: str | Path) -> ControlTokenizer:
    """Load the tokenizer alone; arguments and errors as of `load_text_model`."""
    return load_text_model(source).tokenizer


def load_renderer(
    source: str | Path,
    *,
    call_style: str | None = None,
    chat_template: str | None = None,
    template_arguments: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> TemplateRenderer:
    """Load a renderer.

    Args:
        source: As for `load_text_model`.
        call_style: ``hermes``, ``llama3``, ``mistral`` or ``pythonic``; None finds out from the template.
        chat_template: A template to use instead of the model's.
        template_arguments: What the template may read besides messages and tools, such as ``enable_thinking``.
        now: What a template that shows the date is told. None takes the present moment once.

    Raises:
        ConfigError: See `load_text_model`; there is no chat template; or it writes calls in an unknown style.
        UnknownNameError: There is no such call style.
    """
    model = load_text_model(source)
    templates = model.templates if chat_template is None else Templates(default=chat_template)
    if templates is None:
        raise ConfigError(
            f"{source} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): "
            "it is a base model, or files are missing. Give one with chat_template."
        )
    template = ChatTemplate(
        templates.default,
        tool_source=templates.tool_use,
        variables={**model.special_tokens, **(template_arguments or {})},
        now=now,
    )
    return TemplateRenderer(tokenizer=model.tokenizer, template=template, call_style=call_style)


def byte_renderer(call_style: str | None = None) -> TemplateRenderer:
    """Build a renderer without any model: bytes as tokens, ChatML, tools in Hermes form or the style given.

    Raises:
        UnknownNameError: No such style.
    """
    return TemplateRenderer(tokenizer=ByteTokenizer(), template=ChatTemplate(CHATML), call_style=call_style)


def _from_hub(name: str) -> Path:
    """Fetch the small files of a hub model."""
    if name.count("/") != 1 or name.startswith((".", "/", "~")) or name.endswith("/"):
        raise ConfigError(
            f"{name} does not exist: expected a model directory, a .gguf file, a hub id (owner/name) or tiktoken:NAME."
        )
    try:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ImportError as error:
        raise ConfigError(
            f"{name} is no local path, and hub ids need huggingface_hub: pip install huggingface_hub."
        ) from error
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=_HUB_PATTERNS))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise ConfigError(
            f"{name} is no local path, and the hub does not give it: {ended(' '.join(str(error)[:300].split()))} "
            "Check the name and the network, or give a local directory."
        ) from error


CHATML = (
    "{%- set ns = namespace(system='') %}"
    "{%- if messages[0].role == 'system' %}{%- set ns.system = messages[0].content %}{%- endif %}"
    "{%- if tools %}"
    "{{- '<|im_start|>system\n' }}{%- if ns.system %}{{- ns.system + '\n\n' }}{%- endif %}"
    "{{- 'Tools, one JSON signature per line:\n' }}"
    "{%- for tool in tools %}{{- tool | tojson + '\n' }}{%- endfor %}"
    '{{- \'\nTo call one, write:\n<tool_call>\n{"name": NAME, "arguments": OBJECT}\n</tool_call><|im_end|>\n\' }}'
    "{%- elif ns.system %}{{- '<|im_start|>system\n' + ns.system + '<|im_end|>\n' }}{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'system' and loop.first %}{%- continue %}{%- endif %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content }}"
    "{%- for call in message.tool_calls or [] %}"
    "{%- if not loop.first or message.content %}{{- '\n' }}{%- endif %}"
    "{{- '<tool_call>\n' + {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}"
    "{{- '\n</tool_call>' }}"
    "{%- endfor %}"
    "{{- '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
"""ChatML with tools in the Hermes form, a role for results, and nothing that rewrites earlier turns."""
