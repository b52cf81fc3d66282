"""What a model directory says about its tokenizer and chat template, read without loading anything heavy.

Source of names and precedence: the files that ``save_pretrained`` of the ``transformers`` library writes, in its old
and new layouts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentenv.errors import ConfigError, ended

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """The chat templates of a model."""

    default: str
    tool_use: str | None = None
    """Used instead where there are tools; None if the model has no such template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """What the small files of a model directory say."""

    folder: Path
    config: Mapping[str, Any]
    """``tokenizer_config.json``; empty if there is none."""
    special_tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    """``bos_token``, ``eos_token`` and so on, as text."""
    eos_numbers: tuple[int, ...] = ()
    """Ids that end a generation, from ``generation_config.json`` and ``config.json``."""
    templates: Templates | None = None

    @classmethod
    def read(cls, folder: Path) -> ModelFiles:
        """Read them.

        Raises:
            ConfigError: A file is there and is not what it should be.
        """
        config = _read_json(folder / "tokenizer_config.json")
        return cls(
            folder=folder,
            config=config,
            special_tokens=_special_tokens(_read_json(folder / "special_tokens_map.json"), config),
            eos_numbers=_eos_numbers(folder),
            templates=_templates(folder, config),
        )

    def added_tokens(self) -> dict[int, Mapping[str, Any]]:
        """Added tokens that the configuration names, by id."""
        decoder = self.config.get("added_tokens_decoder")
        return {int(number): token for number, token in decoder.items()} if isinstance(decoder, dict) else {}


def _read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; an absent file is an empty one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {ended(error)} Copy the model's files again.") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds a {type(value).__name__}, expected an object. Copy the model's files again.")
    return value


def token_text(value: Any) -> str | None:
    """Give the text of a token that is written as a string or as an object with ``content``."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _special_tokens(*sources: Mapping[str, Any]) -> dict[str, str]:
    """Collect the named special tokens; a later source wins."""
    found: dict[str, str] = {}
    for source in sources:
        for name in _NAMED_TOKENS:
            text = token_text(source.get(name))
            if text is not None:
                found[name] = text
    return found


def _eos_numbers(folder: Path) -> tuple[int, ...]:
    numbers: list[int] = []
    for name in ("generation_config.json", "config.json"):
        value = _read_json(folder / name).get("eos_token_id")
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int) and number not in numbers:
                numbers.append(number)
    return tuple(numbers)


def _templates(folder: Path, config: Mapping[str, Any]) -> Templates | None:
    """Find the chat templates: files first, then the configuration."""
    named: dict[str, str] = {}
    value = config.get("chat_template")
    if isinstance(value, str):
        named["default"] = value
    elif isinstance(value, list):
        named.update({str(entry["name"]): str(entry["template"]) for entry in value if isinstance(entry, dict)})
    legacy = _read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(legacy, str):
        named["default"] = legacy
    single = folder / "chat_template.jinja"
    if single.is_file():
        named["default"] = single.read_text(encoding="utf-8")
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        named[path.stem] = path.read_text(encoding="utf-8")
    default = named.get("default")
    return None if default is None else Templates(default=default, tool_use=named.get("tool_use"))
