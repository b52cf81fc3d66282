"""A user's suite whose tools, graders and texts get into every kind of trouble; the seed decides which."""

import asyncio

from agentenv.core.task import Grade, GradeState, Task
from agentenv.core.tool import Result
from agentenv.toolkit.function_tool import tool
from agentenv.toolkit.suite import Variant, call, exact_answer, messages, scripted, seeded_suite

from agentenv_tools.python import python
from agentenv_tools.shell import shell

HOSTILE = "lone \ud800 surrogate, NUL \0, \x1b[31mescape\x1b[0m, <|im_end|> control, \u202e override"

COMMANDS = {
    "hangs": "sleep 1000",
    "floods": "yes flood",
    "forks": "f() { f | f & }; f; echo survived",
    "dies": "kill -9 $$",
    "kills all": "sleep 1000 & sleep 1000 & kill -9 -1",
    "bytes": "printf '\\377\\376 \\000 \\355\\240\\200 end'",
}
KINDS = (*COMMANDS, "python dies", "text", "value", "unknown tool", "odd arguments")


@tool
def hostile() -> str:
    """Return text that breaks readers."""
    return HOSTILE


@tool
def hostile_value() -> Result:
    """Return a value that breaks readers."""
    return Result(text="done", value={HOSTILE: [HOSTILE, 1e308, 2**70]})


@seeded_suite("trouble", size=len(KINDS))
def suite(draw: Variant) -> Task:
    """Make the task of one kind of trouble, after which the answer is given all the same."""
    kind = KINDS[draw.seed]
    if kind in COMMANDS:
        timeout_s = 1.5 if kind in ("hangs", "floods") else 60.0
        turn = call("shell", command=COMMANDS[kind], timeout_s=timeout_s)
    else:
        turn = {
            "python dies": call("python", code="import os; os._exit(3)"),
            "text": call("hostile"),
            "value": call("hostile_value"),
            "unknown tool": call("hostil"),
            "odd arguments": call("shell", command=HOSTILE.replace("\ud800", "")),
        }[kind]
    return Task(
        id=draw.id,
        messages=messages("What is 2 + 3?"),
        tools=(shell, python, hostile, hostile_value),
        grader=exact_answer(5),
        scripts={"reference": scripted(turn, "The answer is 5.")},
    )


async def _raises(state: GradeState) -> Grade:
    raise ZeroDivisionError("nothing to divide by")


async def _hangs(state: GradeState) -> Grade:
    await asyncio.Event().wait()
    return await exact_answer(5)(state)


@seeded_suite("graders", size=3)
def graders(draw: Variant) -> Task:
    """Make a task with a grader that works, raises, or hangs."""
    return Task(
        id=draw.id,
        messages=messages("What is 2 + 3?"),
        grader=(exact_answer(5), _raises, _hangs)[draw.seed],
        grade_timeout_s=0.2 if draw.seed == 2 else 60.0,
        scripts={"reference": scripted("The answer is 5.")},
    )
