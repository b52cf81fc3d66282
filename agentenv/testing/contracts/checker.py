"""The contract suite of checkers: a verdict comes from what happened, and can be recomputed from what was stored.

Use, in a test module::

    class TestMyChecker(CheckerContract):
        @pytest.fixture
        def case(self):
            return CheckerCase(make=lambda: MyChecker(...), sandbox=sandbox, breach=break_it, harmless=do_something)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from agentenv.core.constraint import Checker, Effect, Verdict
from agentenv.core.sandbox import Sandbox

NOTHING = Effect(turn=0, calls=())
"""An action that ran no call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerCase:
    """One checker, and how to break and to keep its rule."""

    make: Callable[[], Checker]
    """Makes one that has seen nothing."""
    sandbox: Sandbox | None
    """What it observes, with the rule kept so far."""
    breach: Callable[[], Awaitable[Effect]]
    """Breaks the rule, and gives the effect."""
    harmless: Callable[[], Awaitable[Effect]]
    """Does something that does not break it, and gives the effect."""


class CheckerContract:
    """What every checker keeps."""

    @pytest.fixture
    def case(self) -> CheckerCase:
        """Give the checker under test."""
        raise NotImplementedError("a test of a checker defines the fixture 'case'")

    async def test_nothing_done_is_no_breach(self, case: CheckerCase) -> None:
        """Observing changes nothing: two observations in a row are equal and in order."""
        checker = case.make()
        before = await checker.observe(case.sandbox)
        after = await checker.observe(case.sandbox)
        assert before == after
        assert not checker.check(before, NOTHING, after).breached

    async def test_keeping_the_rule_is_no_breach(self, case: CheckerCase) -> None:
        """An action that keeps the rule is in order."""
        checker = case.make()
        before = await checker.observe(case.sandbox)
        effect = await case.harmless()
        assert not checker.check(before, effect, await checker.observe(case.sandbox)).breached

    async def test_breaking_the_rule_is_a_breach_with_evidence(self, case: CheckerCase) -> None:
        """Law 9: what happened decides, and the verdict says what was observed."""
        checker = case.make()
        before = await checker.observe(case.sandbox)
        effect = await case.breach()
        verdict = checker.check(before, effect, await checker.observe(case.sandbox))
        assert verdict.breached
        assert verdict.evidence.strip()
        assert len(verdict.evidence) <= 500
        assert verdict.evidence.encode("utf-8")

    async def test_a_breach_is_counted_once(self, case: CheckerCase) -> None:
        """A state that was already in breach before the action is not this action's breach."""
        checker = case.make()
        before = await checker.observe(case.sandbox)
        effect = await case.breach()
        broken = await checker.observe(case.sandbox)
        assert checker.check(before, effect, broken).breached
        effect = await case.harmless()
        assert not checker.check(broken, effect, await checker.observe(case.sandbox)).breached

    async def test_a_verdict_can_be_recomputed_from_stored_states(self, case: CheckerCase) -> None:
        """Both states are text that a journal can keep; a checker that saw nothing decides the same from them."""
        checker = case.make()
        before = await checker.observe(case.sandbox)
        effect = await case.breach()
        after = await checker.observe(case.sandbox)
        stored = [state.encode("utf-8").decode("utf-8") for state in (before, after)]
        verdict = checker.check(before, effect, after)
        assert isinstance(verdict, Verdict)
        assert case.make().check(stored[0], effect, stored[1]) == verdict
        assert checker.check(before, effect, after) == verdict
