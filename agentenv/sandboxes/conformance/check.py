"""A check, what it finds, and what it works with."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Sandbox, SandboxLimits, SandboxProvider, SandboxSpec

PATIENCE_S = 60.0
"""Of every call; generous, since no check is about it."""
GRACE_S = 5.0
"""Law 12 gives a command a second beyond its timeout; machines that are busy with other things get some more."""
SLEEP_S = 20
"""How long a process sleeps that should be killed; if nobody does, it ends by itself."""

LIMITS = SandboxLimits(
    memory_bytes=256 << 20,
    processes=64,
    tmp_bytes=4 << 20,
    file_bytes=16 << 20,
    workspace_bytes=24 << 20,
    output_bytes=1 << 16,
)
"""Of the sandboxes that the checks are made in; small, so that it takes little to reach them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check found."""

    holds: bool
    evidence: str
    """What was tried and seen, in words."""


def found(breaches: Sequence[str], otherwise: str) -> Finding:
    """Make the finding of a check that lists what should not have been; ``otherwise`` says what it saw if nothing."""
    return Finding(holds=not breaches, evidence="; ".join(breaches) or otherwise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a check works with."""

    provider: SandboxProvider
    factory: str
    """What makes such a provider in another process, as `agentenv.sandboxes.conformance.factories` takes it."""

    @asynccontextmanager
    async def sandbox(self, limits: SandboxLimits = LIMITS) -> AsyncGenerator[Sandbox]:
        """Lease one for the duration of a block."""
        async with await self.provider.lease(SandboxSpec(limits=limits), patience()) as sandbox:
            yield sandbox

    def mark(self) -> str:
        """Make a word by which processes are found: sleepers sleep ``SLEEP_S`` and this fraction of a second."""
        return f"{SLEEP_S}.{uuid.uuid4().int % 10**12:012d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One of the suite."""

    name: str
    expected: str
    """What a sandbox has to do for it to hold."""
    make: Callable[[Bench], Awaitable[Finding]]

    @classmethod
    def of(cls, make: Callable[[Bench], Awaitable[Finding]]) -> Check:
        """Make one of a function: its name, and the first line of its docstring."""
        expected = (inspect.getdoc(make) or "").split("\n")[0]
        return cls(name=make.__name__, expected=expected.removesuffix("."), make=make)


def patience() -> Deadline:
    """Make the deadline of one call."""
    return Deadline.after(PATIENCE_S, "a call of the conformance suite")


def with_limits(**changes: float | None) -> SandboxLimits:
    """Give the limits of the suite with some of them changed."""
    return replace(LIMITS, **changes)  # pyright: ignore[reportArgumentType] - names are checked by the dataclass
