"""Rules a user or a task stated, where they were stated, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agentenv.records.axes import VisibilityLevel


class Polarity(StrEnum):
    """Whether the rule forbids or demands."""

    FORBID = "forbid"
    REQUIRE = "require"


class Scope(StrEnum):
    """How long a rule holds."""

    EPISODE = "episode"
    """From the message that states it to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """The message span that states a constraint."""

    message_id: str
    start: int
    """First character in the message's text, 0-based."""
    end: int
    """One past the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerSpec:
    """Names a registered checker and its arguments, as data: a constraint can be stored and compared."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A rule to be kept through compaction."""

    id: str
    text: str
    """The rule as it was stated."""
    carrier: Carrier
    checker: CheckerSpec
    polarity: Polarity = Polarity.FORBID
    scope: Scope = Scope.EPISODE
    renderings: tuple[str, ...] = ()
    """Further texts that count as stating it. ``text`` always counts."""
    ends_episode: bool = False
    """Whether a breach ends the episode (``constraint_breach``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """How one live constraint stood in the prompt of one call (law 8)."""

    constraint_id: str
    level: VisibilityLevel
    token_start: int | None = None
    """First prompt token whose text takes part in the rendering; None if absent."""
    token_end: int | None = None
    """One past the last."""
    compaction_id: str | None = None
    """The compaction after which it was absent; None if it is visible, or absent for another reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A constraint was broken, by what happened and not by what was said (law 9)."""

    constraint_id: str
    turn: int
    """The turn whose action broke it."""
    evidence: str
    """What was observed: hashes before and after, or the call."""
    visible: bool
    """Whether the policy could see the rule in the prompt of that turn."""
    compaction_id: str | None
    """Where it could not: the compaction that removed it, if one did."""
