"""What every call style offers, and what one reply was found to hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentenv.records.messages import ParseError

EXCERPT_LENGTH = 200
MOST_CALLS = 128
"""In one reply; each costs a tool's run and a message in the next prompt."""
MOST_ERRORS = 16
"""Told of one reply: thousands of them would only fill the next prompt."""


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


def bounded(found: Found) -> Found:
    """Keep the first calls and errors of a reply that has far too many, and say so in one more error."""
    errors = list(found.errors[:MOST_ERRORS])
    if len(found.errors) > MOST_ERRORS:
        errors.append(
            ParseError(reason=f"{len(found.errors) - MOST_ERRORS} more of this reply are not shown.", excerpt="")
        )
    if len(found.calls) > MOST_CALLS:
        reason = (
            f"This reply has {len(found.calls)} calls. Only the first {MOST_CALLS} were taken; make the others in the "
            "replies that follow."
        )
        errors.append(ParseError(reason=reason, excerpt=""))
    return Found(text=found.text, calls=found.calls[:MOST_CALLS], errors=tuple(errors))


def joined(pieces: Sequence[str]) -> str:
    """Join what lies between calls."""
    return "\n".join(piece for piece in map(str.strip, pieces) if piece)
