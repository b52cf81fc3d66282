"""Runs checks on a provider, one after another, and compares what they find with what is expected."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.sandbox_process import ProcessDied
from agentenv.errors import AgentEnvError
from agentenv.sandboxes.conformance.check import Bench, Check, Finding
from agentenv.sandboxes.conformance.expectations import Expectation, expectation
from agentenv.sandboxes.conformance.inside import Unanswered

_CHECK_S = 180.0
"""Until a check that hangs is given up; none comes near it on a machine that is not overrun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one check."""

    check: Check
    expected: Expectation
    finding: Finding
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Whether the finding is what was expected."""
        return self.expected.met(holds=self.finding.holds)


async def run_check(check: Check, bench: Bench, identity: Mapping[str, str], *, known: Iterable[str] = ()) -> Result:
    """Run one. A sandbox that is lost, an answer out of time or out of the contract: it does not hold."""
    began = time.monotonic()
    deadline = Deadline.after(_CHECK_S, f"the check {check.name}")
    try:
        async with deadline.enforce():
            finding = await check.make(bench)
    except (AgentEnvError, ProcessDied, Unanswered, OSError, ValueError, LookupError) as error:
        if isinstance(error, DeadlineReached) and error.deadline is deadline:
            finding = Finding(holds=False, evidence=f"it was given up after {_CHECK_S:.0f} s")
        else:
            finding = Finding(holds=False, evidence=f"{type(error).__name__}: {error}")
    return Result(
        check=check,
        expected=expectation(check.name, identity, known),
        finding=finding,
        seconds=time.monotonic() - began,
    )


async def run_checks(checks: Iterable[Check], bench: Bench, *, known: Iterable[str] = ()) -> AsyncGenerator[Result]:
    """Run some, in order; give each result when it is there."""
    identity = await asyncio.to_thread(bench.provider.identity)
    known = frozenset(known)
    for check in checks:
        yield await run_check(check, bench, identity, known=known)
