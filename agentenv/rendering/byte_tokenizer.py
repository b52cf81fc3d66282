"""A vocabulary of 256 bytes and three control tokens: for scripted policies without a model, and for tests."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from itertools import groupby

from agentenv.rendering.control_text import spelled, well_formed

_CONTROL = {"<|endoftext|>": 256, "<|im_start|>": 257, "<|im_end|>": 258}
_BY_ID = {number: token for token, number in _CONTROL.items()}
_BYTES = 256
_REPLACEMENT = "\ufffd"


class ByteTokenizer:
    """UTF-8 bytes as ids. A lone surrogate is encoded as U+FFFD."""

    def __init__(self) -> None:
        self._control = spelled(_CONTROL)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(f"bytes {_CONTROL}".encode()).hexdigest()

    @property
    def vocab_size(self) -> int:
        return _BYTES + len(_CONTROL)

    @property
    def control_ids(self) -> Mapping[str, int]:
        return _CONTROL

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return (_CONTROL["<|im_end|>"], _CONTROL["<|endoftext|>"])

    def encode(self, text: str) -> array[int]:
        ids = array("i")
        start = 0
        for match in self._control.finditer(text):
            ids.extend(_utf8(text[start : match.start()]))
            ids.append(_CONTROL[match.group()])
            start = match.end()
        ids.extend(_utf8(text[start:]))
        return ids

    def encode_plain(self, text: str) -> array[int]:
        return array("i", _utf8(text))

    def encode_between(self, text: str) -> array[int]:
        """The same as `encode_plain`: bytes do not look at their neighbours."""
        return self.encode_plain(text)

    def decode(self, ids: Sequence[int]) -> str:
        parts: list[str] = []
        for plain, run in groupby(ids, key=lambda number: 0 <= number < _BYTES):
            if plain:
                parts.append(bytes(run).decode("utf-8", "replace"))
            else:
                parts.extend(_BY_ID.get(number, _REPLACEMENT) for number in run)
        return "".join(parts)


def _utf8(text: str) -> list[int]:
    return list(well_formed(text).encode("utf-8"))
