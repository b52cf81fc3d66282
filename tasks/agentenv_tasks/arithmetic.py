"""Suite ``arithmetic``: questions that need the calculator, in four levels, answered by one whole number.

Level 1 is one product, level 2 two chained operations in words, level 3 a story of four to six calculations,
level 4 a longer one among numbers that do not matter. The prompt is short on purpose: a model of 135 million
parameters is meant to read it.
"""

from __future__ import annotations

from pathlib import Path

from agentenv.core.task import Task
from agentenv.toolkit.suite import Variant, call, exact_answer, messages, scripted, seeded_suite, system, turn_budget

from agentenv_tasks.arithmetic_problems import Problem, long_story, many_steps, product, two_steps
from agentenv_tools.calculator import calculator

_SYSTEM = "Use the calculator for every calculation, one at a time. Then write: The answer is N."
_TURNS = {1: 8, 2: 8, 3: 12, 4: 16}


@seeded_suite(
    "arithmetic",
    size=500,
    levels=(1, 2, 3, 4),
    worked_examples=16,
    sources=(Path(__file__).with_name("arithmetic_problems.py"),),
)
def suite(draw: Variant) -> Task:
    """Make one question."""
    problem = _problem(draw)
    worked = [call("calculator", expression=step.expression) for step in problem.steps]
    return Task(
        id=draw.id,
        messages=messages(system(_SYSTEM), problem.text),
        tools=(calculator,),
        budgets=(turn_budget(_TURNS[draw.level]),),
        grader=exact_answer(problem.answer),
        scripts={"reference": scripted(*worked, f"The answer is {problem.answer}.")},
    )


def _problem(draw: Variant) -> Problem:
    match draw.level:
        case 1:
            return product(draw.seed)
        case 2:
            return two_steps(draw.rng())
        case 3:
            return many_steps(draw.rng())
        case _:
            return long_story(draw.rng())
