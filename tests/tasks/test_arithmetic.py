"""Suite ``arithmetic``.

Promises: every level has 500 questions, all different; the reference passes each within the task's turns and says
only what the calculator said; saying nothing passes none; worked examples are real and are no questions of the suite.
"""

from __future__ import annotations

import pytest
from agentenv.records.axes import CallStatus
from agentenv.records.messages import Message, Role
from agentenv.toolkit.suite import last_number

from agentenv_tasks.arithmetic import suite
from tests.tasks.playing import play


def question(messages: tuple[Message, ...]) -> str:
    return next(message.text for message in messages if message.role is Role.USER)


@pytest.mark.parametrize("level", suite.levels)
async def test_reference_passes_and_nothing_does_not(level: int):
    """For every variant."""
    for seed in range(suite.size):
        task = suite.task(seed, level)
        reference = await play(task, "reference")
        assert reference.passed, (task.id, reference.components)
        assert reference.components == {"answer": 1.0}
        assert all(result.status is CallStatus.OK for _, result in reference.calls)
        assert last_number(reference.calls[-1][1].text) == last_number(task.scripts["reference"](_view(99)).text)
        nothing = await play(task, "nothing")
        assert not nothing.passed
        assert nothing.components == {"answer": 0.0}


def _view(turn: int):
    from agentenv.core.task import ScriptView

    return ScriptView(turn=turn, prompt_text="", messages=(), seed=0)


@pytest.mark.parametrize("level", suite.levels)
def test_questions_differ_from_one_another_and_from_the_worked_examples(level: int):
    questions = {question(suite.task(seed, level).messages) for seed in range(suite.size)}
    assert len(questions) == suite.size
    examples = {question(example) for example in suite.demonstrations(suite.worked_examples, level)}
    assert len(examples) == suite.worked_examples
    assert not examples & questions


def test_levels_need_more_and_more_calls():
    def mean_calls(level: int) -> float:
        turns = 0
        for seed in range(50):
            script = suite.task(seed, level).scripts["reference"]
            turns += next(turn for turn in range(20) if not script(_view(turn)).calls)
        return turns / 50

    means = [mean_calls(level) for level in suite.levels]
    assert means[:2] == [1.0, 2.0]
    assert means[1] < means[2] < means[3]


def test_level_one_asks_for_one_product():
    task = suite.task(0, 1)
    assert task.messages[1].text == "What is 22 * 49?"
    assert task.messages[1].pinned
    assert sum(len(message.text) for message in task.messages) < 120


async def test_a_wrong_number_fails():
    task = suite.task(0, 1)
    assert task.grader is not None
    wrong = await play(
        _with_script(task, "The answer is 1079."),
        "wrong",
    )
    assert wrong.components == {"answer": 0.0}
    assert "expected 1078, got 1079" in wrong.grade.components[0].detail


def _with_script(task, text: str):
    from dataclasses import replace

    from agentenv.toolkit.suite import scripted

    return replace(task, scripts={**task.scripts, "wrong": scripted(text)})


def test_five_examples_of_level_one_are_short():
    """The prompt of a small model holds five of them."""
    examples = suite.demonstrations(5, 1)
    assert len(examples) == 5
    for example in examples:
        assert [message.role for message in example] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
        assert sum(len(message.text) for message in example) < 60
