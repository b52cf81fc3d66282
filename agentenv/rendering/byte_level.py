"""Decoding of byte-level vocabularies: every token stands for bytes, and text is what the bytes of all of them spell.

The tokens' texts are written in an alphabet of 256 characters, one for each byte. Source: ``bytes_to_unicode`` of
GPT-2; the decoder ``ByteLevel`` of the ``tokenizers`` library, which this does the work of in a third of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

_PRINTED = (*range(33, 127), *range(161, 173), *range(174, 256))
"""Bytes written as the character of their number; the others are written as those from U+0100 on."""
_BYTE_OF = {chr(byte): byte for byte in _PRINTED} | {
    chr(256 + index): byte for index, byte in enumerate(byte for byte in range(256) if byte not in _PRINTED)
}


class ByteLevelText(dict[int, bytes]):
    """Id to bytes, filled as ids are met. Safe in several threads: an id may be looked up twice, never wrongly."""

    def __init__(self, token_of: Callable[[int], str | None], *, size: int) -> None:
        """Take what gives the token of an id, None where an id below ``size`` has none."""
        super().__init__()
        self._token_of = token_of
        self._size = size

    def __missing__(self, number: int) -> bytes:
        if not 0 <= number < self._size:
            raise KeyError(number)
        token = self._token_of(number) or ""
        try:
            piece = bytes(map(_BYTE_OF.__getitem__, token))
        except KeyError:  # an added token with other characters stands for itself
            piece = token.encode()
        self[number] = piece
        return piece

    def decode(self, ids: Sequence[int]) -> str:
        """Decode; bytes that are no UTF-8 become U+FFFD.

        Raises:
            KeyError: An id is out of the vocabulary.
        """
        return b"".join(map(self.__getitem__, ids)).decode("utf-8", "replace")


def is_byte_level(definition: Mapping[str, Any]) -> bool:
    """Say whether the decoder of a ``tokenizer.json`` is this one."""
    return (definition.get("decoder") or {}).get("type") == "ByteLevel"
