"""Law 12 at every place where an episode waits for somebody: whatever it does with the deadline it is given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.task import Grade, GradeState, Suite, Task
from agentenv.records.axes import BudgetOwner, FaultDomain, Outcome, Scoring, StopReason
from agentenv.records.episode import EpisodeRecord
from agentenv.toolkit.function_tool import tool
from agentenv.toolkit.suite import Variant, call, scripted

from tests.rollout.kit import Hooked, add, audited, changed, collect, right, suite_of, sums, wall_clock
from tests.rollout.test_foreign_code import Provider, checker, compressor, in_sandbox, ruled_by, sandboxed

LIMIT = 0.2


async def never(*_: object) -> Any:
    await asyncio.Event().wait()


PLACES: dict[str, Callable[[], dict[str, Any]]] = {
    "leasing": lambda: sandboxed(Provider("lease", never)),
    "the first snapshot": lambda: sandboxed(Provider("snapshot", never)),
    "a later snapshot": lambda: sandboxed(Provider("snapshot", never, calls_before=1)),
    "a checker's first look": lambda: ruled_by(checker("observe", never)),
    "a checker's later look": lambda: ruled_by(checker("observe", never, later=True)),
    "compressing": lambda: {"parts": {"compressor": compressor(never)}},
    "sampling": lambda: {"policy": Hooked(never)},
}


async def one(out: Path, **setup: Any) -> EpisodeRecord:
    """Collect one episode; give it."""
    await collect(out, **{"tasks": 1, "options": {"max_attempts": 1}, **setup})
    (record,) = audited(out).values()
    return record


@pytest.mark.parametrize("place", PLACES)
async def test_an_episode_ends_within_its_limit_wherever_it_waits(tmp_path: Path, place: str) -> None:
    """Law 12: with the budget that ran out as its reason, and as nobody's fault."""
    began = time.monotonic()
    record = await one(tmp_path / "run", episode={"budgets": (wall_clock(LIMIT),)}, **PLACES[place]())
    assert (record.reason, record.budget) == (StopReason.COLLECTOR_BUDGET, "collector.wall_clock")
    assert record.fault is None
    assert LIMIT <= record.elapsed_s <= time.monotonic() - began


async def test_a_reply_that_does_not_come_says_what_to_do(tmp_path: Path) -> None:
    """The policy never looks at its deadline, so the harness does."""
    options = {"max_attempts": 1, "reply_timeout_s": 0.05}
    record = await one(tmp_path / "run", policy=Hooked(never), options=options)
    assert record.fault is not None
    assert (record.fault.domain, record.fault.retryable) == (FaultDomain.POLICY_SERVER, True)
    assert "no reply within 0.05 s to a prompt of" in record.fault.message
    assert "--reply-timeout" in record.fault.message


async def test_tools_that_do_not_end_say_which_and_what_to_do(tmp_path: Path) -> None:
    @tool
    async def stuck() -> str:
        """Never return."""
        return await never()

    def make(draw: Variant) -> Task:
        return replace(sums(draw), tools=(add, stuck), scripts={"reference": scripted(call("stuck"), "5")})

    record = await one(tmp_path / "run", suite=suite_of(make), episode={"tool_timeout_s": 0.05})
    assert record.fault is not None
    assert record.fault.domain is FaultDomain.TOOL
    for part in ("tool 'stuck' was at work", "within 0.05 s", "--tool-timeout"):
        assert part in record.fault.message


@pytest.mark.parametrize("place", ["a later snapshot", "a checker's later look"])
async def test_a_look_at_what_was_done_that_does_not_end(tmp_path: Path, place: str) -> None:
    record = await one(tmp_path / "run", episode={"tool_timeout_s": 0.3}, **PLACES[place]())
    assert record.fault is not None
    assert record.fault.domain is FaultDomain.SANDBOX
    for part in ("within 0.3 s", "--tool-timeout", "--no-snapshots"):
        assert part in record.fault.message


class TestGrading:
    """Its limit is its own, and adds to the episode's."""

    @staticmethod
    def suite(grader: Callable[[GradeState], Any], **fields: Any) -> Suite:
        return changed(grader=grader, **fields)

    async def test_it_has_its_limit_beside_the_episodes(self, tmp_path: Path) -> None:
        async def grade(state: GradeState) -> Grade:
            return await never()

        limit = 1.0  # enough for two turns on any machine
        budgets = {"budgets": (wall_clock(limit, BudgetOwner.COLLECTOR),)}
        suite = self.suite(grade, grade_timeout_s=limit)
        record = await one(tmp_path / "run", suite=suite, episode=budgets)
        assert (record.reason, record.scoring) == (StopReason.FINAL_ANSWER, Scoring.TIMED_OUT)
        assert limit <= record.scoring_s <= record.elapsed_s

    async def test_a_sandbox_that_cannot_be_emptied_is_not_the_graders_fault(self, tmp_path: Path) -> None:
        """It would have had its turn after that."""
        provider = Provider("stop_processes", never)
        suite = suite_of(lambda draw: replace(in_sandbox(draw), grade_timeout_s=0.05))
        record = await one(tmp_path / "run", suite=suite, provider=provider)
        assert (record.reason, record.scoring) == (StopReason.FINAL_ANSWER, Scoring.FAILED)
        assert record.fault is not None
        assert (record.fault.domain, record.fault.retryable) == (FaultDomain.SANDBOX, True)
        assert "did not end its processes within 0.05 s" in record.fault.message

    async def test_one_that_holds_the_loop_has_timed_out_all_the_same(self, tmp_path: Path) -> None:
        """No timer can stop it; what it gives afterwards comes too late."""

        async def grade(state: GradeState) -> Grade:
            own = Deadline.after(0.05, "spinning")
            while not own.passed:
                pass
            return await right(state)

        record = await one(tmp_path / "run", suite=self.suite(grade, grade_timeout_s=0.02))
        assert (record.scoring, record.outcome, record.reward) == (Scoring.TIMED_OUT, Outcome.UNKNOWN, None)

    @pytest.mark.parametrize("named", [True, False])
    async def test_a_deadline_of_somebody_else_is_an_error_of_the_grader(self, tmp_path: Path, named: bool) -> None:
        """Law 12: only the deadline of the grading itself is its timeout."""

        async def grade(state: GradeState) -> Grade:
            theirs = Deadline.after(0.0, f"grading {state.stop_reason}") if named else None
            raise DeadlineReached("a database of theirs", theirs)

        record = await one(tmp_path / "run", suite=self.suite(grade))
        assert record.scoring is Scoring.FAILED
        assert record.fault is not None
        assert "raised DeadlineReached: a database of theirs" in record.fault.message
        assert not record.fault.retryable
