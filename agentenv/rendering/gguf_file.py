"""The metadata of a GGUF file.

Source: the GGUF specification, versions 2 and 3 (little-endian). Tensors are not looked at, and only the pages that
hold metadata are read.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from agentenv.errors import ConfigError, ended

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")


def read_metadata(path: Path) -> dict[str, Any]:
    """Read every key of a GGUF file's metadata.

    Raises:
        ConfigError: It cannot be opened, is no GGUF file, is cut off, or is of a version this reader does not know.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).metadata()
    except (OSError, ValueError, struct.error, IndexError) as error:
        raise ConfigError(f"{path} is no readable GGUF file: {ended(error)} Fetch the model again.") from error


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def metadata(self) -> dict[str, Any]:
        magic = self._bytes(4)
        if magic != _MAGIC:
            raise ValueError(f"it begins with {magic!r}, expected {_MAGIC!r}")
        version = self._scalar("I")
        if version not in _VERSIONS:
            raise ValueError(f"its version is {version}, known are {_VERSIONS}")
        self._scalar("Q")  # number of tensors
        count = self._scalar("Q")
        return dict(self._entry() for _ in range(self._plausible(count)))

    def _entry(self) -> tuple[str, Any]:
        key = self._string()
        return key, self._value(self._scalar("I"))

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        if kind not in _SCALARS:
            raise ValueError(f"unknown value type {kind} at byte {self._at}")
        return self._scalar(_SCALARS[kind])

    def _array(self) -> list[Any]:
        kind = self._scalar("I")
        count = self._plausible(self._scalar("Q"))
        if kind in _SCALARS:
            layout = struct.Struct(f"<{count}{_SCALARS[kind]}")
            return list(layout.unpack(self._bytes(layout.size)))
        return self._strings(count) if kind == _STRING else [self._value(kind) for _ in range(count)]

    def _strings(self, count: int) -> list[str]:
        """Read many strings without a call for each: vocabularies have hundreds of thousands."""
        data, at, length_at = self._data, self._at, _LENGTH.unpack_from
        texts: list[str] = []
        for _ in range(count):
            (length,) = length_at(data, at)
            start = at + _LENGTH.size
            at = start + length
            texts.append(data[start:at].decode("utf-8", "replace"))
        self._at = at
        if at > len(data):
            raise ValueError(f"it ends at byte {len(data)}, in the middle of its metadata")
        return texts

    def _string(self) -> str:
        (length,) = _LENGTH.unpack(self._bytes(_LENGTH.size))
        return self._bytes(length).decode("utf-8", "replace")

    def _scalar(self, code: str) -> Any:
        layout = struct.Struct("<" + code)
        return layout.unpack(self._bytes(layout.size))[0]

    def _bytes(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise ValueError(f"it ends at byte {len(self._data)}, in the middle of its metadata")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def _plausible(self, count: int) -> int:
        if count > len(self._data):
            raise ValueError(f"it announces {count} entries in {len(self._data)} bytes")
        return count
