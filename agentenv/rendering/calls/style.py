"""What every call style offers, and what one reply was found to hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentenv.records.messages import ParseError

EXCERPT_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCall:
    """A call as text states it: not yet numbered."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a reply holds."""

    text: str
    """What is no call, stretches that were meant as one included; without white space around it."""
    calls: tuple[WrittenCall, ...] = ()
    errors: tuple[ParseError, ...] = ()


class CallStyle(Protocol):
    """Reads and writes calls in one style. Invariant: ``parse(write(text, calls))`` gives both back.

    That holds for text without white space around it that spells nothing of the style itself.
    """

    @property
    def name(self) -> str:
        """As in `RendererIdentity.call_style`."""
        ...

    @property
    def markers(self) -> tuple[str, ...]:
        """Control tokens that the parser looks for; all others are dropped before it sees the text."""
        ...

    def parse(self, text: str) -> Found:
        """Read a reply. Total."""
        ...

    def write(self, text: str, calls: Sequence[WrittenCall]) -> str:
        """Write a reply, turn end not included."""
        ...


def mistake(reason: str, text: str) -> ParseError:
    """Build a parse error: what to write instead, and where it went wrong."""
    excerpt = text if len(text) <= EXCERPT_LENGTH else text[: EXCERPT_LENGTH - 1] + "…"
    return ParseError(reason=reason, excerpt=excerpt)


def joined(pieces: Sequence[str]) -> str:
    """Join what lies between calls."""
    return "\n".join(piece for piece in map(str.strip, pieces) if piece)
