"""A vocabulary in the format of the ``tokenizers`` library."""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agentenv.errors import ConfigError, ended
from agentenv.rendering.byte_level import ByteLevelText, is_byte_level
from agentenv.rendering.control_text import spelled, well_formed
from agentenv.rendering.model_files import ModelFiles
from agentenv.rendering.word_cache import WordCache, agrees, word_pattern

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

_REPLACEMENT = "\ufffd"
_SHAPED_LIKE_CONTROL = re.compile("<[|\uff5c].*[|\uff5c]>")
_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_ANCHOR = "\ue002anchor\ue003"
"""Stands in front of text that must not be encoded as the first of a string; private, and dropped again."""


class HfTokenizer:
    """Wraps one backend. Encoding and decoding are safe in several threads.

    *Control tokens* are the added tokens marked special, those that the chat template spells, and those shaped like
    ``<|…|>``. Text that spells one is encoded as plain text by `encode_plain`. Other added tokens (runs of spaces,
    HTML tags in some vocabularies) are ordinary vocabulary.
    """

    def __init__(
        self,
        definition: Mapping[str, Any],
        *,
        sha256: str,
        text: str | None = None,
        template_text: str = "",
        eos_ids: Sequence[int] = (),
    ) -> None:
        """Build from a ``tokenizer.json``.

        Args:
            definition: Its content.
            sha256: Content hash of whatever ``definition`` was made from.
            text: The same as JSON text, where it is at hand.
            template_text: The chat template, for finding out which added tokens are control tokens.
            eos_ids: Ids that end a generation.

        Raises:
            ConfigError: The library does not take the definition.
        """
        self._backend = _load(json.dumps(definition) if text is None else text)
        self._added: dict[int, Any] = self._backend.get_added_tokens_decoder()
        self._added_ids: dict[str, int] = {token.content: number for number, token in self._added.items()}
        self.control_ids: Mapping[str, int] = {
            token.content: number for number, token in self._added.items() if _is_control(token, template_text)
        }
        self.eos_ids = tuple(eos_ids)
        self.sha256 = sha256
        self._control_numbers = frozenset(self.control_ids.values())
        self._spelled = spelled(self.control_ids)
        self._added_text = spelled([token.content for token in self._added.values()])
        self._words = self._word_cache(definition)
        if self._words is not None and not agrees(self.encode, self._encode):
            self._words = None
        self.vocab_size = _size(definition)
        self._bytes = (
            ByteLevelText(self._backend.id_to_token, size=self.vocab_size) if is_byte_level(definition) else None
        )

    @cached_property
    def _plain(self) -> Backend:
        """A second backend that sees no control tokens; built when text first spells one."""
        definition = json.loads(self._backend.to_str())
        for token in definition["added_tokens"]:
            token["special"] = bool(token["special"]) or token["content"] in self.control_ids
        backend = _load(json.dumps(definition))
        backend.encode_special_tokens = True
        backend.add_tokens([_anchor()])
        return backend

    @property
    def is_fast(self) -> bool:
        """Whether ASCII text takes the shortcut of `agentenv.rendering.word_cache`."""
        return self._words is not None

    def token_id(self, text: str) -> int | None:
        """Look a token up by its text."""
        return self._backend.token_to_id(text)

    def encode(self, text: str) -> array[int]:
        if self._words is None or not text.isascii():
            return array("i", self._encode(text))
        ids: list[int] = []
        start = 0
        for match in self._added_text.finditer(text):
            ids += self._words.encode(text[start : match.start()])
            ids.append(self._added_ids[match.group()])
            start = match.end()
        ids += self._words.encode(text[start:])
        return array("i", ids)

    def encode_plain(self, text: str) -> array[int]:
        return self._encode_uncontrolled(text, anchored=False)

    def encode_between(self, text: str) -> array[int]:
        return self._encode_uncontrolled(text, anchored=True)

    def decode(self, ids: Sequence[int]) -> str:
        if self._bytes is not None:
            with suppress(KeyError):
                return self._bytes.decode(ids)
        return self._decode(list(ids))

    def _decode(self, ids: list[int]) -> str:
        """Decode with the library; ids out of the vocabulary become U+FFFD."""
        if not ids or (min(ids) >= 0 and max(ids) < self.vocab_size):
            return self._backend.decode(ids, skip_special_tokens=False)
        parts: list[str] = []
        start = 0
        for index, number in enumerate([*ids, -1]):
            if not 0 <= number < self.vocab_size:
                parts.append(self._backend.decode(ids[start:index], skip_special_tokens=False))
                parts.append(_REPLACEMENT)
                start = index + 1
        return "".join(parts[:-1])

    def _encode(self, text: str) -> list[int]:
        return self._backend.encode(well_formed(text), add_special_tokens=False).ids

    def _word_cache(self, definition: Mapping[str, Any]) -> WordCache | None:
        """Build the shortcut for ASCII text, if the definition allows one."""
        if any(token.lstrip or token.rstrip or token.single_word for token in self._added.values()):
            return None
        pattern = word_pattern(definition)
        return None if pattern is None else WordCache(pattern, self._encode)

    def _encode_uncontrolled(self, text: str, *, anchored: bool) -> array[int]:
        if not anchored and not self._spelled.search(text):
            ids = self.encode(text)
            if self._control_numbers.isdisjoint(ids):
                return ids
        ids = self._encode_as_text(text, anchored=anchored)
        if self._control_numbers.isdisjoint(ids):
            return ids
        # The model's own vocabulary spells a control token (unigram models do): keep its characters apart.
        pieces = [self._encode_as_text(piece, anchored=True) for piece in self._cut(text)]
        return array("i", [number for piece in pieces for number in piece])

    def _encode_as_text(self, text: str, *, anchored: bool) -> array[int]:
        text = well_formed(text)
        if not anchored:
            return array("i", self._plain.encode(text, add_special_tokens=False).ids)
        encoded = self._plain.encode(_ANCHOR + text.replace(_ANCHOR, _REPLACEMENT), add_special_tokens=False)
        return array("i", encoded.ids[1:])

    def _cut(self, text: str) -> list[str]:
        """Cut every spelled control token after its first character."""
        pieces: list[str] = []
        start = 0
        for match in self._spelled.finditer(text):
            pieces.append(text[start : match.start() + 1])
            start = match.start() + 1
        return [*pieces, text[start:]]


def _size(definition: Mapping[str, Any]) -> int:
    """Give one past the highest id. Words are an object with ids, or a list in the order of their ids."""
    words = definition["model"]["vocab"]
    added = [token["id"] for token in definition.get("added_tokens") or []]
    highest = max(words.values(), default=-1) if isinstance(words, Mapping) else len(words) - 1
    return max([highest, *added]) + 1


def _is_control(token: Any, template_text: str) -> bool:
    content: str = token.content
    if len(content) < 2 or content.isspace():
        return False
    return bool(token.special) or content in template_text or _SHAPED_LIKE_CONTROL.fullmatch(content) is not None


def _anchor() -> Any:
    from tokenizers import AddedToken

    return AddedToken(_ANCHOR, normalized=False, special=False)


def _load(definition: str) -> Backend:
    from tokenizers import Tokenizer as Backend

    try:
        backend = Backend.from_str(definition)
    except Exception as error:  # the library raises no narrower class
        raise ConfigError(f"the tokenizer's definition cannot be read: {error}") from error
    # Settings of the last training run are stored with a vocabulary; they must not cut or pad what we encode.
    backend.no_truncation()
    backend.no_padding()
    return backend


def read_hf_tokenizer(files: ModelFiles) -> HfTokenizer:
    """Load the tokenizer of a model directory.

    Raises:
        ConfigError: There is no ``tokenizer.json``, or the files contradict one another.
    """
    path = files.folder / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(
            f"{files.folder} has no tokenizer.json. Models with another kind of vocabulary file can be converted: "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) with the transformers library writes one."
        )
    raw = path.read_text(encoding="utf-8")
    try:
        definition = json.loads(raw)
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {ended(error)} Copy the model's files again.") from error
    if not isinstance(definition, dict):
        raise ConfigError(f"{path} holds a {type(definition).__name__}, expected an object. Copy the files again.")
    changed = _add_missing_tokens(definition, files)
    templates = files.templates
    template_text = "" if templates is None else templates.default + (templates.tool_use or "")
    control = json.dumps(sorted(changed))
    tokenizer = HfTokenizer(
        definition,
        text=None if changed else raw,
        template_text=template_text,
        eos_ids=files.eos_numbers,
        sha256=hashlib.sha256(f"{raw}\0{control}".encode()).hexdigest(),
    )
    _check_added(tokenizer, files)
    tokenizer.eos_ids = _eos_ids(tokenizer, files)
    return tokenizer


def _add_missing_tokens(definition: dict[str, Any], files: ModelFiles) -> list[str]:
    """Add the tokens that only the configuration names, in the order of their ids; give their texts."""
    present = {token["content"] for token in definition.setdefault("added_tokens", [])}
    missing = [(number, token) for number, token in sorted(files.added_tokens().items())
               if token.get("content") not in present]  # fmt: skip
    for number, token in missing:
        flags = {key: bool(token.get(key, False)) for key in _TOKEN_FLAGS}
        definition["added_tokens"].append({"id": number, "content": token["content"], **flags})
    return [str(token["content"]) for _, token in missing]


def _check_added(tokenizer: HfTokenizer, files: ModelFiles) -> None:
    for number, token in files.added_tokens().items():
        found = tokenizer.token_id(str(token.get("content")))
        if found != number:
            raise ConfigError(
                f"{files.folder}: tokenizer_config.json gives {token.get('content')!r} the id {number}, "
                f"tokenizer.json gives it {found}. The two files are of different models; copy both again."
            )


def _eos_ids(tokenizer: HfTokenizer, files: ModelFiles) -> tuple[int, ...]:
    """Put the tokenizer's own end token first, then those of the generation settings."""
    text = files.special_tokens.get("eos_token")
    named = None if text is None else tokenizer.token_id(text)
    numbers = [] if named is None else [named]
    return tuple(dict.fromkeys([*numbers, *files.eos_numbers]))
