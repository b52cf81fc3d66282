"""Suite ``lookup``.

Promises: files of tens of KB; one trail and one answer; the reference passes every task and needs a long history for
it; the answer is in none of the places where one need not look.
"""

from __future__ import annotations

import re

import pytest
from agentenv.core.sandbox import SandboxProvider
from agentenv.records.axes import CallStatus, StopReason

from agentenv_tasks.lookup import suite
from agentenv_tasks.lookup_archive import ENTRIES_PER_FILE
from tests.tasks.playing import play

SAMPLE = range(0, 400, 50)
HOPS = {1: 3, 2: 4, 3: 6}


def follow(files: dict[str, str], path: str, code: str) -> tuple[list[str], int]:
    """Solve a task as its question says, from the files alone."""
    way: list[str] = []
    while True:
        way.append(path)
        (line,) = [line for line in files[path].splitlines() if line.startswith(f"[{code}] ")]
        if closed := re.search(r"Closed with (\d+) sheets\.$", line):
            return way, int(closed[1])
        onward = re.search(r"Continued under (\S+) in (\S+)\.$", line)
        assert onward is not None
        code, path = onward[1], onward[2]


@pytest.mark.parametrize("level", suite.levels)
def test_every_question_has_the_one_answer_that_is_graded(level: int):
    """For every eighth variant; the slow tier takes all of them."""
    check_questions(range(0, suite.size, 8), level)


@pytest.mark.slow
@pytest.mark.parametrize("level", suite.levels)
def test_every_question_has_the_one_answer_that_is_graded_for_all(level: int):
    check_questions(range(suite.size), level)


def check_questions(seeds: range, level: int) -> None:
    questions: set[str] = set()
    for seed in seeds:
        task = suite.task(seed, level)
        question = task.messages[1].text
        questions.add(question)
        start = re.search(r"entry \[(\S+)\] in (\S+) and", question)
        assert start is not None
        files = {path: content.decode() for path, content in task.files.items()}
        way, count = follow(files, start[2], start[1])
        assert len(way) == len(set(way)) == HOPS[level]
        assert task.grader.expected == count  # type: ignore[union-attr]
        if seed % 40 == 0:
            assert all(25_000 < len(content) < 40_000 for content in task.files.values())
            assert all(text.count("\n") == ENTRIES_PER_FILE for text in files.values())
            assert sum(text.count(f"with {count} sheets") for text in files.values()) <= 3
            assert str(count) not in question
    assert len(questions) == len(seeds)


def test_levels_take_tools_away():
    names = {level: [tool.spec.name for tool in suite.task(0, level).tools] for level in suite.levels}
    assert sorted(names[1]) == ["files_list", "files_read", "files_search"]
    assert sorted(names[2]) == ["files_list", "files_read"]
    assert names[3] == ["files_read"]


async def check_task(seed: int, level: int, provider: SandboxProvider) -> int:
    task = suite.task(seed, level)
    reference = await play(task, "reference", provider)
    assert reference.components == {"answer": 1.0}, (task.id, reference.grade)
    assert reference.stop_reason is StopReason.FINAL_ANSWER
    assert all(result.status is CallStatus.OK for _, result in reference.calls)
    assert f"with {task.grader.expected} sheets" in reference.calls[-1][1].text  # type: ignore[union-attr]
    nothing = await play(task, "nothing", provider)
    assert nothing.components == {"answer": 0.0}
    return sum(len(message.text) for message in reference.messages)


@pytest.mark.parametrize("level", suite.levels)
async def test_reference_passes_and_nothing_does_not(level: int, provider: SandboxProvider):
    """For a sample of 8 per level; the others are played in the slow tier."""
    sizes = [await check_task(seed, level, provider) for seed in SAMPLE]
    assert min(sizes) > {1: 18_000, 2: 20_000, 3: 60_000}[level]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("level", suite.levels)
async def test_reference_passes_and_nothing_does_not_for_all(level: int, provider: SandboxProvider):
    for seed in set(range(suite.size)) - set(SAMPLE):
        await check_task(seed, level, provider)
