"""Suite ``repair``: a small Python project with one bug and a failing test; hidden tests decide.

Every project has three modules out of twenty, each with a contract in the README; one of them is broken in one of
some forty ways. The tests in the project are for the policy's use and have no part in the verdict.
"""

from __future__ import annotations

from pathlib import Path

from agentenv.core.task import OnText, Task, Turn
from agentenv.toolkit.suite import Variant, call, messages, scripted, seeded_suite, system, turn_budget

from agentenv_tasks.repair.grading import GRADE_TIMEOUT_S, HiddenTests
from agentenv_tasks.repair.project import Project, build_project
from agentenv_tools.files import files
from agentenv_tools.python import python
from agentenv_tools.shell import shell
from agentenv_tools.submit import submit

_SYSTEM = "You repair Python projects in a folder of files with the given tools. When the work is done, call submit."
_TURNS = 30
_RUN_TESTS = call("shell", command="python3 -B -m unittest")
_SUBMIT = call("submit")


@seeded_suite(
    "repair",
    size=400,
    sources=tuple(
        Path(__file__).with_name(f"{name}.py")
        for name in ("grading", "project", "unit", "units_lists", "units_numbers", "units_state", "units_text")
    ),
)
def suite(draw: Variant) -> Task:
    """Make one project."""
    project = build_project(draw.rng(), draw.seed)
    return Task(
        id=draw.id,
        messages=messages(
            system(_SYSTEM),
            f"A test of this project fails: the package `{project.package}` has one bug. README.md says what every "
            "module must do, and how to run the tests. Find the bug and mend it in the package. Your work is judged "
            "by other tests of the same contracts, so mending or removing the test does not help.",
        ),
        tools=(*files, shell, python, submit),
        files=project.files,
        budgets=(turn_budget(_TURNS),),
        grader=HiddenTests(checks=project.hidden),
        grade_timeout_s=GRADE_TIMEOUT_S,
        on_text=OnText.OBSERVE,
        scripts={
            "reference": scripted(
                _RUN_TESTS, call("files_read", path=project.path), _mend(project), _RUN_TESTS, _SUBMIT
            ),
            "nothing": scripted(_SUBMIT),
        },
    )


def _mend(project: Project) -> Turn:
    old, new = smallest_edit(project.broken, project.right)
    return call("files_edit", path=project.path, old=old, new=new)


def smallest_edit(before: str, after: str) -> tuple[str, str]:
    r"""Give the fewest whole lines to replace, and by what, such that the lines occur once in ``before``.

    >>> smallest_edit("a\nb\na\n", "a\nb\nc\n")
    ('b\na\n', 'b\nc\n')
    """
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    rest = 0
    while rest < min(len(old), len(new)) - start and old[-1 - rest] == new[-1 - rest]:
        rest += 1
    while start and before.count("".join(old[start : len(old) - rest])) != 1:
        start -= 1
    return "".join(old[start : len(old) - rest]), "".join(new[start : len(new) - rest])
