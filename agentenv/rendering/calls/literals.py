r"""Python literals out of a model's text.

Not `ast.parse`: it warns about ``"\d"`` through process-wide warning filters (which no thread may change safely), and
its own recursion is bounded by the interpreter's stack. This reader has its own limits and one exception.
"""

from __future__ import annotations

import math
import re
from typing import Any

from agentenv.rendering.calls.json_text import MAX_DEPTH
from agentenv.rendering.control_text import well_formed

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[A-Za-z_][\w\-]*")
_DOTTED = re.compile(r"[A-Za-z_][\w\-]*(?:\.[A-Za-z_][\w\-]*)*")
_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_STRING = re.compile(r"""'([^'\\]*(?:\\.[^'\\]*)*)'|"([^"\\]*(?:\\.[^"\\]*)*)\"""", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "'": "'", '"': '"', "\\": "\\", "/": "/", "\n": ""}
_CONSTANTS: dict[str, Any] = {
    "True": True, "False": False, "None": None, "true": True, "false": False, "null": None,
}  # fmt: skip
_MAX_DIGITS = 4000


class NotALiteral(ValueError):
    """What stands here is no literal; the message says where and what was expected."""


class LiteralReader:
    """Reads forward through one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def accept(self, symbol: str) -> bool:
        """Step over ``symbol`` if it is next."""
        self._skip_space()
        if not self._text.startswith(symbol, self._position):
            return False
        self._position += len(symbol)
        return True

    def expect(self, symbol: str) -> None:
        """Step over ``symbol``.

        Raises:
            NotALiteral: Something else is next.
        """
        if not self.accept(symbol):
            raise self._wrong(f"{symbol!r}")

    def expect_end(self) -> None:
        """Check that nothing is left.

        Raises:
            NotALiteral: There is.
        """
        self._skip_space()
        if self._position != len(self._text):
            raise self._wrong("nothing more")

    def name(self, *, dotted: bool) -> str:
        """Read an identifier.

        Raises:
            NotALiteral: There is none.
        """
        return self._match(_DOTTED if dotted else _NAME, "a name").group()

    def value(self, depth: int = 0) -> Any:
        """Read a string, number, constant, list, tuple (as a list) or dict.

        Raises:
            NotALiteral: It is none of them.
        """
        if depth > MAX_DEPTH:
            raise self._wrong(f"no more than {MAX_DEPTH} levels of nesting")
        self._skip_space()
        head = self._text[self._position : self._position + 1]
        if head in ("'", '"'):
            return self._string()
        if head == "{":
            return self._mapping(depth)
        if head in ("[", "("):
            return self._sequence("]" if head == "[" else ")", depth)
        if head.isdigit() or head in ("+", "-", "."):
            return self._number()
        return self._constant()

    def _sequence(self, closing: str, depth: int) -> list[Any]:
        self._position += 1
        items: list[Any] = []
        while not self.accept(closing):
            items.append(self.value(depth + 1))
            if not self.accept(","):
                self.expect(closing)
                break
        return items

    def _mapping(self, depth: int) -> dict[str, Any]:
        self._position += 1
        items: dict[str, Any] = {}
        while not self.accept("}"):
            key = self.value(depth + 1)
            if not isinstance(key, str):
                raise self._wrong("a key that is a string")
            self.expect(":")
            items[key] = self.value(depth + 1)
            if not self.accept(","):
                self.expect("}")
                break
        return items

    def _string(self) -> str:
        match = self._match(_STRING, "a string that is closed")
        body = match.group(1) if match.group(1) is not None else match.group(2)
        return well_formed(_ESCAPE.sub(_unescape, body))

    def _number(self) -> int | float:
        written = self._match(_NUMBER, "a number").group()
        if len(written) > _MAX_DIGITS:
            raise self._wrong(f"a number of at most {_MAX_DIGITS} digits")
        digits = written.replace("_", "")
        if digits.lstrip("+-").isdigit():
            return int(digits)
        number = float(digits)
        if math.isinf(number):
            raise self._wrong("a finite number")
        return number

    def _constant(self) -> Any:
        start = self._position
        word = self._match(_NAME, "a literal (string, number, list, dict, True, False or None)").group()
        if word not in _CONSTANTS:
            self._position = start
            raise self._wrong("a literal (string, number, list, dict, True, False or None)")
        return _CONSTANTS[word]

    def _match(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        self._skip_space()
        match = pattern.match(self._text, self._position)
        if match is None:
            raise self._wrong(expected)
        self._position = match.end()
        return match

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._position)
        if match is not None:
            self._position = match.end()

    def _wrong(self, expected: str) -> NotALiteral:
        here = self._text[self._position : self._position + 20] or "the end"
        return NotALiteral(f"expected {expected} at character {self._position}, found {here!r}")


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    if code[0] in "ux" and len(code) > 1:
        return chr(int(code[1:], 16))
    return _SIMPLE.get(code, match.group())
