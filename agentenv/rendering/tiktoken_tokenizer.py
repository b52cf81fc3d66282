"""OpenAI's vocabularies through ``tiktoken``: for counting and rendering text-only policies.

Named vocabularies are downloaded by that library once; `TiktokenTokenizer.from_file` needs no network.

How OpenAI's servers frame messages is not public. The two control tokens of ChatML are added after the last id of a
vocabulary, so that messages can be rendered and counted; a policy that sees text only is never trained on these ids.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from agentenv.errors import ConfigError, UnknownNameError, ended
from agentenv.rendering.control_text import spelled, well_formed

if TYPE_CHECKING:
    from tiktoken import Encoding

_CHAT_TOKENS = ("<|im_start|>", "<|im_end|>")
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s"
_CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s"
_O200K = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CONTRACTIONS}?",
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CONTRACTIONS}?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_KINDS: dict[str, tuple[str, dict[str, int]]] = {
    "r50k_base": (_GPT2, {"<|endoftext|>": 50256}),
    "p50k_base": (_GPT2, {"<|endoftext|>": 50256}),
    "cl100k_base": (_CL100K, {
        "<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260,
        "<|endofprompt|>": 100276}),
    "o200k_base": (_O200K, {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}),
}  # fmt: skip
"""How a vocabulary splits text, and its special tokens. Source: ``tiktoken``'s own definitions of these names."""


class TiktokenTokenizer:
    """Wraps one encoding."""

    def __init__(self, encoding: Encoding, *, control: Mapping[str, int]) -> None:
        """Wrap.

        Args:
            encoding: The vocabulary.
            control: Its special tokens.
        """
        size = encoding.max_token_value + 1
        chat = {token: size + index for index, token in enumerate(_CHAT_TOKENS) if token not in control}
        self._encoding = encoding
        self.control_ids: Mapping[str, int] = {**control, **chat}
        self.eos_ids = tuple(self.control_ids[token] for token in ("<|im_end|>", "<|endoftext|>"))
        self.vocab_size = size + len(chat)
        self.sha256 = _hash(encoding, self.control_ids)
        self._spelled = spelled(self.control_ids)
        self._texts = {number: token for token, number in self.control_ids.items()}

    @classmethod
    def named(cls, name: str) -> TiktokenTokenizer:
        """Load a vocabulary by its name, downloading its table if ``tiktoken`` has not cached it.

        Raises:
            UnknownNameError: There is no such vocabulary.
            ConfigError: ``tiktoken`` is missing, or the table cannot be had.
        """
        tiktoken = _tiktoken()
        known: list[str] = tiktoken.list_encoding_names()
        if name not in known:
            raise UnknownNameError.of("tiktoken vocabulary", name, known)
        try:
            encoding = tiktoken.get_encoding(name)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the table of {name} is not cached and cannot be downloaded: {ended(error)} "
                "Set TIKTOKEN_CACHE_DIR to a folder that has it, or give the file itself (TiktokenTokenizer.from_file)."
            ) from error
        special = {token: encoding.encode_single_token(token) for token in encoding.special_tokens_set}
        return cls(encoding, control=special)

    @classmethod
    def from_file(cls, path: Path, *, kind: str) -> TiktokenTokenizer:
        """Load a ``.tiktoken`` table from a file.

        Args:
            path: Lines of a token in base64 and its rank.
            kind: Which vocabulary's splitting and special tokens go with it.

        Raises:
            UnknownNameError: No such kind.
            ConfigError: ``tiktoken`` is missing, or the file is no such table.
        """
        if kind not in _KINDS:
            raise UnknownNameError.of("tiktoken vocabulary", kind, _KINDS)
        pattern, special = _KINDS[kind]
        ranks = _read_ranks(path)
        clash = [token for token, number in special.items() if number in set(ranks.values())]
        if clash:
            raise ConfigError(f"{path} gives the ids of {', '.join(clash)} to other tokens: it is no {kind} table.")
        encoding = _tiktoken().Encoding(kind, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
        return cls(encoding, control=special)

    def encode(self, text: str) -> array[int]:
        text = well_formed(text)
        ids = array("i")
        start = 0
        for match in self._spelled.finditer(text):
            ids.extend(self._encoding.encode_ordinary(text[start : match.start()]))
            ids.append(self.control_ids[match.group()])
            start = match.end()
        ids.extend(self._encoding.encode_ordinary(text[start:]))
        return ids

    def encode_plain(self, text: str) -> array[int]:
        return array("i", self._encoding.encode_ordinary(well_formed(text)))

    def encode_between(self, text: str) -> array[int]:
        """The same as `encode_plain`: these vocabularies treat the start of a text like any other place."""
        return self.encode_plain(text)

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(map(self._bytes_of, ids)).decode("utf-8", "replace")

    def _bytes_of(self, number: int) -> bytes:
        if (text := self._texts.get(number)) is not None:
            return text.encode()
        try:
            return self._encoding.decode_single_token_bytes(number)
        except (KeyError, OverflowError):
            return "\ufffd".encode()


def _tiktoken() -> ModuleType:
    try:
        import tiktoken
    except ImportError as error:
        raise ConfigError("OpenAI vocabularies need tiktoken: pip install tiktoken.") from error
    return tiktoken


def _read_ranks(path: Path) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    number = 0
    try:
        for line in path.read_bytes().splitlines():
            number += 1
            if line.strip():
                token, rank = line.split()
                ranks[base64.b64decode(token, validate=True)] = int(rank)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except (ValueError, binascii.Error) as error:
        raise ConfigError(f"{path}, line {number}: expected a token in base64 and its rank: {error}") from error
    missing = 256 - sum(bytes([value]) in ranks for value in range(256))
    if missing:
        raise ConfigError(f"{path} lacks {missing} of the 256 single bytes: it is no complete table.")
    return ranks


def _hash(encoding: Encoding, control: Mapping[str, int]) -> str:
    digest = hashlib.sha256(f"{encoding.name} {sorted(control.items())}".encode())
    for token in sorted(encoding.token_byte_values()):
        digest.update(len(token).to_bytes(4, "little") + token)
        digest.update(encoding.encode_single_token(token).to_bytes(4, "little"))
    return digest.hexdigest()
