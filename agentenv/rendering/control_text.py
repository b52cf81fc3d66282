"""Control tokens that a template writes, kept apart from text that merely spells them.

Tool output, user input and arguments may spell ``<|im_end|>``. Rendered into a template as it is, that text would
become a control token. So every such spelling is replaced by an escape before the template sees it, and put back as
ordinary text afterwards: what the template itself wrote is all that is left of control tokens in between.

The escape is ``U+E000 index U+E001``. Both characters are escaped themselves, so no text can forge one.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from agentenv.core.renderer import Tokenizer

_OPEN, _CLOSE = "\ue000", "\ue001"
_ESCAPE = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


class ControlTokenizer(Tokenizer, Protocol):
    """What a template renderer needs of a tokenizer beyond the contract."""

    @property
    def control_ids(self) -> Mapping[str, int]:
        """Control tokens by their text. Text that spells one is neutralised."""
        ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end a generation, as the model's own files say; may be empty."""
        ...

    def encode_between(self, text: str) -> array[int]:
        """Encode text that stands after a control token and must not turn into one."""
        ...


def spelled(tokens: Collection[str]) -> re.Pattern[str]:
    """Build a pattern that finds any of ``tokens``, the longest first; one that never matches if there are none.

    A trie of the tokens, not an alternation of them: vocabularies with a thousand reserved tokens are common.
    """
    return re.compile(_trie_pattern(sorted(set(tokens))) if tokens else r"(?!)")


def _trie_pattern(words: Sequence[str]) -> str:
    """Turn sorted distinct words into one pattern; ``""`` among them makes the rest optional."""
    branches: dict[str, list[str]] = {}
    for word in words:
        if word:
            branches.setdefault(word[0], []).append(word[1:])
    parts = [re.escape(head) + (_trie_pattern(tails) if tails != [""] else "") for head, tails in branches.items()]
    pattern = parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
    return f"(?:{pattern})?" if "" in words else pattern


class ControlText:
    """The control tokens of one vocabulary, as patterns."""

    def __init__(self, tokens: Collection[str]) -> None:
        self.pattern = spelled(tokens)
        self._escaped = re.compile(f"{self.pattern.pattern}|[{_OPEN}{_CLOSE}]")

    def escaper(self) -> Escaper:
        """Begin a rendering."""
        return Escaper(self._escaped)

    def encode(self, tokenizer: ControlTokenizer, rendered: str, escaper: Escaper) -> array[int]:
        """Encode what a template wrote from escaped texts.

        Text without an escape, all of it in the ordinary case, is encoded in one call, so that merges across the
        border of template and content are those of the whole string. A stretch between two control tokens that has
        an escape in it is restored and encoded as one piece of plain text.
        """
        if not escaper.originals:
            return tokenizer.encode(rendered)
        ids = array("i")
        start = position = 0
        for stretch, end in self._stretches(rendered):
            if _ESCAPE.search(stretch):
                ids.extend(tokenizer.encode(rendered[start:position]))
                plain = tokenizer.encode_between if position else tokenizer.encode_plain
                ids.extend(plain(escaper.restore(stretch)))
                start = position + len(stretch)
            position = end
        ids.extend(tokenizer.encode(rendered[start:]))
        return ids

    def _stretches(self, rendered: str) -> Iterator[tuple[str, int]]:
        """Give the text before each control token and the end of that token; the last has no token."""
        start = 0
        for match in self.pattern.finditer(rendered):
            yield rendered[start : match.start()], match.end()
            start = match.end()
        yield rendered[start:], len(rendered)


class Escaper:
    """Escapes the texts of one rendering and remembers what it took out."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.originals: list[str] = []

    def text(self, text: str) -> str:
        """Give ``text`` without any spelling of a control token."""
        return self._pattern.sub(self._take, text)

    def value(self, value: Any) -> Any:
        """Escape every string in a JSON value, keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value

    def restore(self, text: str) -> str:
        """Put the originals back."""
        return _ESCAPE.sub(self._give, text) if self.originals else text

    def _take(self, match: re.Match[str]) -> str:
        self.originals.append(match.group())
        return f"{_OPEN}{len(self.originals) - 1}{_CLOSE}"

    def _give(self, match: re.Match[str]) -> str:
        return self.originals[int(match.group(1))]


def well_formed(text: str) -> str:
    """Give ``text`` with lone surrogates as U+FFFD; the same object if it has none."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
