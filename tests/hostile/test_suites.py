"""Suites that misbehave: whatever a user's code raises or returns ends its own episode, and the run reads back."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import pytest
from agentenv.core.deadline import Deadline
from agentenv.core.task import Grade, GradeState, Suite, Task, Turn
from agentenv.core.tool import Result, ToolContext
from agentenv.errors import ConfigError, TaskFault
from agentenv.records.axes import CallStatus, FaultDomain, Outcome, Scoring, StopReason
from agentenv.records.episode import EpisodeRecord, RewardComponent
from agentenv.records.messages import Message, Spill, TaskEnd
from agentenv.rollout.collector import Tally
from agentenv.toolkit.suite import Variant, call, scripted

from tests.rollout.kit import add, audited, changed, collect, suite_of, sums

TASKS = 3


async def run(out: Path, suite: Suite) -> tuple[Tally, list[EpisodeRecord]]:
    """Collect with one worker, so that one that dies takes the run along; then read everything, and audit it."""
    tally = await collect(out, suite=suite, tasks=TASKS, options={"concurrency": 1, "max_attempts": 1})
    assert tally.planned == TASKS
    assert tally.done + tally.faulted == TASKS
    return tally, list(audited(out).values())


def a_component(**fields: Any) -> RewardComponent:
    return RewardComponent(**{"name": "x", "value": 1.0, "source": "environment", **fields})


def a_grade(*components: Any, outcome: Any = Outcome.SUCCESS) -> Grade:
    return Grade(components=components, outcome=outcome)


def recursion() -> Any:
    return recursion()


def stray_cancellation() -> None:
    raise asyncio.CancelledError


GRADES: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "text": lambda: "good",
    "no components": lambda: Grade(components=cast("Any", None), outcome=Outcome.SUCCESS),
    "an empty grade": a_grade,
    "a mapping for a component": lambda: a_grade({"name": "x"}),
    "an outcome nobody knows": lambda: a_grade(a_component(), outcome="yes"),
    "a value that is text": lambda: a_grade(a_component(value="1")),
    "a value that is a truth": lambda: a_grade(a_component(value=True)),
    "not a number": lambda: a_grade(a_component(value=math.nan)),
    "infinite": lambda: a_grade(a_component(value=-math.inf)),
    "scored without a value": lambda: a_grade(a_component(value=None)),
    "a value that is not scored": lambda: a_grade(a_component(status=Scoring.FAILED)),
    "a name that is none": lambda: a_grade(a_component(name=None)),
    "a source that is an object": lambda: a_grade(a_component(source=object())),
    "exit": sys.exit,
    "a cancellation that nobody asked for": stray_cancellation,
    "a recursion without end": recursion,
}


def graded(name: str) -> Suite:
    async def grade(state: GradeState) -> Grade:
        return GRADES[name]()

    return changed(grader=grade)


@pytest.mark.parametrize("name", GRADES)
async def test_a_grader_that_gives_no_grade(tmp_path: Path, name: str) -> None:
    """Law 5: it leaves the episode unscored by its own fault, and never makes a zero or a record nobody can read."""
    tally, records = await run(tmp_path / "run", graded(name))
    assert tally.faulted == TASKS
    for record in records:
        assert (record.reason, record.scoring) == (StopReason.FINAL_ANSWER, Scoring.FAILED)
        assert (record.reward, record.outcome) == (None, Outcome.UNKNOWN)
        assert record.fault is not None
        assert record.fault.domain is FaultDomain.GRADER
        assert "the grader of sums/" in record.fault.message


async def test_what_can_be_read_as_a_grade_is_one(tmp_path: Path) -> None:
    async def grade(state: GradeState) -> Grade:
        component = a_component(value=1, status="scored", detail="\ud800" * 9_000)
        return Grade(components=cast("Any", [component]), outcome=cast("Any", "success"))

    tally, records = await run(tmp_path / "run", changed(grader=grade))
    assert tally.done == TASKS
    for record in records:
        assert (record.reward, record.outcome) == (1.0, Outcome.SUCCESS)
        assert len(record.rewards[0].detail) == 500


class Raw:
    """A tool that is no function of ours."""

    spec = add.spec
    needs_sandbox = parallel = False
    sha256 = "raw"

    def __init__(self, gives: Callable[[], Any]) -> None:
        self._gives = gives

    async def call(self, arguments: dict[str, Any], context: ToolContext, deadline: Deadline) -> Result:
        return self._gives()


class Word(StrEnum):
    """Text of another class."""

    OK = "ok"


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(900):
        value = [value]
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


BROKEN_RESULTS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "text": lambda: "5",
    "text that is a number": lambda: Result(text=cast("Any", 5)),
    "a status nobody knows": lambda: Result(text="x", status=cast("Any", "fine")),
    "an exit code that is text": lambda: Result(text="x", exit_code=cast("Any", "0")),
    "an exit code beyond 64 bits": lambda: Result(text="x", exit_code=1 << 70),
    "half a byte": lambda: Result(text="x", bytes_dropped=cast("Any", 0.5)),
    "a spill that is text": lambda: Result(text="x", full_output=cast("Any", "abc")),
    "a spill of nothing": lambda: Result(text="x", full_output=Spill(sha256=cast("Any", None), size_bytes=1)),
    "an end nobody knows": lambda: Result(text="x", ends=cast("Any", "over")),
    "a value that is an object": lambda: Result(text="x", value=object(), ends=TaskEnd.COMPLETED),
    "a value that is very deep": lambda: Result(text="x", value=deep(), ends=TaskEnd.COMPLETED),
    "a value that contains itself": lambda: Result(text="x", value=endless(), ends=TaskEnd.COMPLETED),
    "exit": sys.exit,
    "a cancellation that nobody asked for": stray_cancellation,
    "a recursion without end": recursion,
}


def playing(tool: Any) -> Suite:
    return changed(tools=(tool,), scripts={"reference": scripted(call("add", a=2, b=3), "5"), "nothing": scripted("")})


@pytest.mark.parametrize("name", BROKEN_RESULTS)
async def test_a_tool_that_gives_no_result(tmp_path: Path, name: str) -> None:
    """It is the tool's fault, of its episode alone; what is on record can be read."""
    tally, records = await run(tmp_path / "run", playing(Raw(BROKEN_RESULTS[name])))
    assert tally.faulted == TASKS
    assert [record.fault and record.fault.domain for record in records] == [FaultDomain.TOOL] * TASKS


async def test_what_can_be_read_as_a_result_is_one(tmp_path: Path) -> None:
    given = Result(text=Word.OK, status=cast("Any", "ok"), exit_code=True, ends=cast("Any", "completed"), value=[5])
    tally, records = await run(tmp_path / "run", playing(Raw(lambda: given)))
    assert tally.done == TASKS
    for record in records:
        assert record.reason is StopReason.COMPLETED
        (result,) = record.steps[0].results
        assert (result.text, result.status, result.exit_code, result.value) == ("ok", CallStatus.OK, 1, [5])


class Duck:
    """A suite that is none of ours, so that nobody has checked its tasks."""

    name, size, levels, sha256 = "duck", 10, (1,), "0" * 64

    def __init__(self, make: Callable[[Task], Any]) -> None:
        self._make = make

    def task(self, seed: int, level: int = 1) -> Task:
        return self._make(sums(Variant(suite="duck", seed=seed, level=level)))

    def demonstrations(self, n: int, level: int = 1) -> Sequence[tuple[Message, ...]]:
        return ()


def message(**fields: Any) -> Callable[[Task], Task]:
    return lambda task: replace(task, messages=(replace(task.messages[0], **fields),))


BROKEN_TASKS: dict[str, Callable[[Task], Any]] = {
    "nothing": lambda task: None,
    "no messages": lambda task: replace(task, messages=()),
    "a message without text": message(text=None),
    "a message of bytes": message(text=b"What is 2 + 3?"),
    "a role nobody knows": message(role="narrator"),
    "an id that is a number": lambda task: replace(task, id=5),
    "no hash": lambda task: replace(task, content_sha256=None),
    "a budget that is text": lambda task: replace(task, budgets=("turns=5",)),
    "an exit": lambda task: sys.exit(4),
}


@pytest.mark.parametrize("name", BROKEN_TASKS)
async def test_a_task_that_is_none(tmp_path: Path, name: str) -> None:
    """It is the task's fault, is not tried again, and spares the tasks that are whole."""
    make = BROKEN_TASKS[name]
    suite = Duck(lambda task: make(task) if task.id.endswith("1") else task)
    tally, records = await run(tmp_path / "run", suite)
    assert (tally.done, tally.faulted, tally.attempts) == (TASKS - 1, 1, TASKS)
    (fault,) = [record.fault for record in records if record.fault is not None]
    assert fault.domain is FaultDomain.TASK
    assert not fault.retryable


MAKERS: dict[str, Callable[[Task], Any]] = {
    "an exit": lambda task: sys.exit("no such seed"),
    "a cancellation that nobody asked for": lambda task: stray_cancellation(),
    "nothing": lambda task: None,
    "text": lambda task: "a task",
    "tools that are none": lambda task: replace(task, tools=cast("Any", None)),
    "a tool that is none": lambda task: replace(task, tools=(cast("Any", 5),)),
    "a recursion without end": lambda task: recursion(),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_suite_whose_code_goes_wrong(name: str) -> None:
    """It is the suite's fault, and says so: no other exception comes out of it, whatever is raised or returned."""
    suite = suite_of(lambda draw: MAKERS[name](sums(draw)))
    with pytest.raises(TaskFault, match=r"Suite 'sums' .* seed 7 of level 1") as caught:
        suite.task(7)
    assert not caught.value.retryable


@pytest.mark.parametrize("files", [["a"], {"a": "text"}, {"a": None}, {"a": [1]}])
def test_files_that_are_none(files: Any) -> None:
    """They are refused before anything is run, with the task named, and are nobody else's fault."""
    with pytest.raises(ConfigError, match=r"sums/l1/000007: .*bytes, got"):
        suite_of(lambda draw: replace(sums(draw), files=files)).task(7)


async def test_a_seed_that_exits(tmp_path: Path) -> None:
    def make(draw: Variant) -> Task:
        return sums(draw) if draw.seed != 1 else sys.exit("no such seed")

    tally, _ = await run(tmp_path / "run", suite_of(make))
    assert (tally.done, tally.faulted) == (TASKS - 1, 1)


@pytest.mark.parametrize(
    "script",
    [lambda view: None, lambda view: sys.exit(2), lambda view: Turn(calls=(("add", {"a": object()}),))],
    ids=["nothing", "exit", "an argument that is an object"],
)
async def test_a_script_that_says_nothing_sayable(tmp_path: Path, script: Any) -> None:
    scripts = {"reference": script, "nothing": scripted("")}
    tally, records = await run(tmp_path / "run", changed(scripts=scripts))
    assert tally.faulted == TASKS
    assert {record.fault and record.fault.domain for record in records} == {FaultDomain.TASK}
