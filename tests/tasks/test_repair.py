"""Suite ``repair``.

Promises: 400 projects that differ in their code; in each the visible tests show the bug and the hidden ones as well;
mending it passes, doing nothing does not; and no trick with the workspace stands in for mending it.
"""

from __future__ import annotations

import ast
import doctest
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from agentenv.core.sandbox import SandboxProvider
from agentenv.core.task import Task, Turn
from agentenv.errors import GraderFault
from agentenv.records.axes import CallStatus, StopReason
from agentenv.toolkit.suite import GradeState, Variant, call, scripted

from agentenv_tasks import repair
from agentenv_tasks.repair import suite
from agentenv_tasks.repair.grading import HiddenTests
from agentenv_tasks.repair.project import UNITS, Project, build_project
from agentenv_tasks.repair.unit import Check, observe
from tests.tasks.playing import Played, play

SAMPLE = range(0, 400, 19)


def project_of(seed: int) -> Project:
    return build_project(Variant(suite="repair", seed=seed, level=1).rng(), seed)


@pytest.fixture(scope="module")
def projects() -> list[Project]:
    return [project_of(seed) for seed in range(suite.size)]


def test_projects_differ_in_their_code(projects: list[Project]):
    """Compared as syntax trees, so that neither names of packages nor spacing make a difference."""

    def tree(project: Project) -> tuple[str, ...]:
        modules = [text for path, text in sorted(project.files.items()) if not path.startswith("tests/")]
        return tuple(ast.dump(ast.parse(text)) for text in modules[1:] if not text.startswith(b'"""'))

    assert len({tree(project) for project in projects}) == len(projects)
    assert len({ast.dump(ast.parse(project.broken)) for project in projects}) >= 200
    assert len({project.path.split("/")[1] for project in projects}) == len(UNITS) == 20
    assert len(Counter(project.bug.kind for project in projects)) >= 30


def test_a_bug_is_one_place_and_the_reference_mends_it(projects: list[Project]):
    for project in projects:
        assert project.files[project.path].decode() == project.broken
        old, new = repair.smallest_edit(project.broken, project.right)
        assert project.broken.count(old) == 1
        assert project.broken.replace(old, new) == project.right
        assert len(old.splitlines()) <= 6


def test_hidden_checks_tell_right_from_broken_and_are_not_shown(projects: list[Project]):
    """The bug shows in a visible check, and in another that is hidden; both modules beside it are checked as well."""
    for project in projects:
        module = project.path.removesuffix(".py").replace("/", ".")
        for checks in (project.visible, project.hidden):
            own = [check for check in checks if check.module == module]
            given = [Check(calls=check.calls) for check in own]
            expected = [list(check.expected) for check in own]
            assert observe(project.right, given) == expected
            assert observe(project.broken, given) != expected
            assert len({check.module for check in checks}) == 3
        shown = {repr((check.module, check.calls)) for check in project.visible}
        assert not shown & {repr((check.module, check.calls)) for check in project.hidden}


def test_contracts_that_need_knowing_are_worked_out_by_hand():
    """A few answers from the contracts alone, so that sources and checks cannot be wrong together."""
    by_name = {maker.__name__: maker(random.Random(3)) for maker in UNITS}
    cases = [
        ("intervals", "covered", ([[0, 4], [2, 6], [10, 11]],), 7),
        ("calendar", "is_leap", (1900,), False),
        ("calendar", "month_days", (2024, 2), 29),
        ("numerals", "to_roman", (944,), "CMXLIV"),
        ("numerals", "from_roman", ("xiv",), 14),
        ("versions", "compare", ("1.10", "1.9"), 1),
        ("versions", "newest", ([],), None),
        ("shares", "percent", (5, 8), 63),
        ("queries", "parse", ("e=a=b=c",), {"e": ["a=b=c"]}),
        ("ledger", "post", ([["cash", 3], ["cash", 4]],), {"cash": 7}),
        ("runs", "decode", ([["q", 1], ["r", 4]],), "qrrrr"),
        ("windows", "moving_sums", ([1, 2, 3, 4], 2), [3, 5, 7]),
        ("settings", "merged", ({"a": {"b": 1}}, {"a": 5}), {"a": 5}),
        ("rate_limit", "waits", ([1, 4, 9],), [3, 5]),
        ("cache", "hit_rate", ([True, False, True],), 66),
        ("buckets", "widest", ([1, 2, 9],), 2),
        ("distinct", "distinct", (["a", "B", "c"],), ["a", "B", "c"]),
        ("leaderboard", "ranking", ([],), []),
        ("cells", "parse_line", ("",), [""]),
        ("paging", "page_count", (0, 3), 0),
        ("grid", "around", ([[1, 2, 0], [3, 0, 0]], 0, 0), 5),
    ]
    for unit, function, arguments, value in cases:
        seen = observe(by_name[unit].source, [Check(calls=((function, arguments),))])[0][0]
        assert seen["value"] == value, (unit, seen)


def test_visible_tests_fail_before_and_pass_after(projects: list[Project], tmp_path: Path):
    """As whoever repairs the project sees them."""
    for seed in SAMPLE[::3]:
        project = projects[seed]
        root = tmp_path / str(seed)
        for path, content in project.files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        assert _run_tests(root) == 1
        (root / project.path).write_text(project.right)
        assert _run_tests(root) == 0


def _run_tests(root: Path) -> int:
    command = [sys.executable, "-B", "-m", "unittest", "-q"]
    return subprocess.run(command, cwd=root, capture_output=True, check=False).returncode


async def check_seed(seed: int, provider: SandboxProvider) -> None:
    task = suite.task(seed)
    reference = await play(task, "reference", provider)
    assert reference.passed, (task.id, reference.grade)
    assert reference.components == {"hidden_tests": 1.0}
    assert reference.stop_reason is StopReason.COMPLETED
    assert all(result.status is CallStatus.OK for _, result in reference.calls)
    before, after = reference.results_of("shell")
    assert before.exit_code == 1
    assert after.exit_code == 0
    nothing = await play(task, "nothing", provider)
    assert not nothing.passed
    assert nothing.components == {"hidden_tests": 0.0}


async def test_reference_passes_and_nothing_does_not(provider: SandboxProvider):
    """For a sample that has every unit; the others are played in the slow tier."""
    assert len({seed % len(UNITS) for seed in SAMPLE}) == len(UNITS)
    for seed in SAMPLE:
        await check_seed(seed, provider)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(4))
async def test_reference_passes_and_nothing_does_not_for_all(part: int, provider: SandboxProvider):
    for seed in range(part, suite.size, 4):
        if seed not in SAMPLE:
            await check_seed(seed, provider)


async def cheat(seed: int, provider: SandboxProvider, *turns: Turn, within_s: float = 5.0) -> Played:
    task: Task = suite.task(seed)
    assert isinstance(task.grader, HiddenTests)
    scripts = {**task.scripts, "cheat": scripted(*turns, call("submit"))}
    grader = replace(task.grader, check_timeout_s=within_s)
    return await play(replace(task, scripts=scripts, grader=grader), "cheat", provider)


def write(path: str, content: str) -> Turn:
    return call("files_write", path=path, content=content)


SEED = 0
PROJECT = project_of(SEED)
MODULE = PROJECT.path.removesuffix(".py").replace("/", ".")
TEST = f"tests/test_{MODULE.split('.')[1]}.py"

FAKE_VERDICT = """
import os, sys
frame = sys._getframe()
job = None
while frame is not None:
    job = job or frame.f_globals.get("job")
    frame = frame.f_back
if job:
    line = job["nonce"] + '[{"value": null, "arguments": []}]'
    for fd in range(3, 64):
        try:
            os.write(fd, (line + chr(10)).encode())
        except OSError:
            pass
    print(line)
"""

SHADOW = "import sys\nsys.exit(0)\n"

TRICKS = {
    "the visible test is removed": [call("shell", command=f"rm {TEST}")],
    "the visible test is made to pass": [write(TEST, "import unittest\n")],
    "a unittest of one's own": [write("unittest.py", SHADOW), write("unittest/__init__.py", SHADOW)],
    "a json and an importlib of one's own": [
        write("json.py", "def load(f): raise SystemExit(0)\n"),
        write("importlib.py", "raise SystemExit(0)\n"),
        write("os.py", "raise SystemExit(0)\n"),
    ],
    "a sitecustomize, a usercustomize and a conftest": [
        write(name, "import os\nos._exit(0)\n")
        for name in ("sitecustomize.py", "usercustomize.py", "conftest.py", "pytest.py")
    ],
    "the module ends the process": [write(PROJECT.path, "import os\nos._exit(0)\n")],
    "the module raises SystemExit": [write(PROJECT.path, "raise SystemExit(0)\n")],
    "the module prints a verdict": [write(PROJECT.path, "print('OK')\nprint('[]')\n")],
    "the module writes a verdict with the number of this process": [write(PROJECT.path, FAKE_VERDICT + PROJECT.broken)],
    "answers that are equal to everything": [
        write(
            PROJECT.path,
            "class Any(list):\n    def __eq__(self, other): return True\n    __hash__ = None\n"
            "def __getattr__(name): return lambda *a: Any()\n",
        )
    ],
    "answers that cannot be written": [write(PROJECT.path, "def __getattr__(name): return lambda *a: object()\n")],
    "the comparison is patched": [
        write(f"{MODULE.split('.')[0]}/__init__.py", "import json\njson.dumps = lambda *a, **k: 'null'\n")
    ],
    "an endless loop": [write(PROJECT.path, "while True: pass\n")],
    "a flood": [
        write(
            PROJECT.path,
            "import os\nwhile True:\n for fd in range(3, 9):\n  try: os.write(fd, b'x' * 99)\n  except OSError: 0\n",
        )
    ],
    "the module kills every process": [write(PROJECT.path, "import os\nos.kill(-1, 9)\n")],
    "the module kills whoever started it": [write(PROJECT.path, "import os\nos.kill(os.getppid(), 9)\n")],
    "the module stops itself": [write(PROJECT.path, "import os\nos.kill(os.getpid(), 19)\n")],
    "the module takes all memory": [
        write(PROJECT.path, "kept = []\nwhile True: kept.append(bytearray(b'x') * (1 << 24))\n")
    ],
    "the module fills the workspace": [
        write(PROJECT.path, "with open('fill', 'wb') as file:\n while True: file.write(b'x' * (1 << 20))\n")
    ],
    "the module forks without end": [
        write(
            PROJECT.path,
            "import os\nwhile True:\n try: os.fork()\n except OSError: os._exit(0)\n",
        )
    ],
    "the module remembers what it was asked": [
        write(
            PROJECT.path,
            "import pathlib, sys\nlog = pathlib.Path('asked')\n"
            "job = sys._getframe(1)\nwhile job.f_back: job = job.f_back\n"
            "log.write_text(str(job.f_globals.get('job')))\n" + PROJECT.broken,
        )
    ],
    "the package is gone": [call("shell", command=f"rm -r {MODULE.split('.')[0]}")],
    "the module is a folder": [call("shell", command=f"rm {PROJECT.path} && mkdir {PROJECT.path}")],
    "the module is a pipe": [call("shell", command=f"rm {PROJECT.path} && mkfifo {PROJECT.path}")],
    "deep nesting": [
        write(
            PROJECT.path,
            "def __getattr__(name):\n    v = []\n    for _ in range(900): v = [v]\n    return lambda *a: v\n",
        )
    ],
}


SLOW = ("an endless loop", "a flood", "the module stops itself", "the module forks without end")


@pytest.mark.parametrize("trick", TRICKS)
async def test_tricks_do_not_pass(trick: str, provider: SandboxProvider):
    """Whether a module is merely late does not matter here: none of these has the answers.

    Nor does one break what grades it: an episode with a fault would be sampled anew instead of getting its 0.
    """
    played = await cheat(SEED, provider, *TRICKS[trick], within_s=1.0 if trick in SLOW else 5.0)
    assert played.components == {"hidden_tests": 0.0}, played.grade


async def test_a_repair_passes_whatever_lies_beside_it(provider: SandboxProvider):
    """What is no trick is not punished: the repaired module counts, not the litter."""
    litter = [
        turn
        for name in ("a json and an importlib of one's own", "a sitecustomize, a usercustomize and a conftest")
        for turn in TRICKS[name]
    ]
    played = await cheat(SEED, provider, write(PROJECT.path, PROJECT.right), *litter, within_s=60.0)
    assert played.components == {"hidden_tests": 1.0}, played.grade


async def test_compiled_files_do_not_count(provider: SandboxProvider):
    """A compiled file made of the right source lies beside the broken one, marked as never to be checked."""
    compile_right = (
        f"import py_compile as p; p.compile('{PROJECT.path}', invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)"
    )
    played = await cheat(
        SEED,
        provider,
        write(PROJECT.path, PROJECT.right),
        call("shell", command=f'python3 -c "{compile_right}"'),
        write(PROJECT.path, PROJECT.broken),
    )
    assert played.results_of("shell")[0].exit_code == 0
    assert played.components == {"hidden_tests": 0.0}, played.grade


async def test_a_process_left_running_has_no_part_in_the_verdict(provider: SandboxProvider):
    """It would put the broken module right only while it is looked at."""
    loop = f"while true; do cp {PROJECT.path}.right {PROJECT.path}; sleep 0.01; done"
    played = await cheat(
        SEED,
        provider,
        write(f"{PROJECT.path}.right", PROJECT.right),
        call("shell", command=f"(setsid sh -c '{loop}' >/dev/null 2>&1 &) ; sleep 0.3; true"),
        write(PROJECT.path, PROJECT.broken),
    )
    assert played.components == {"hidden_tests": 0.0}, played.grade


async def test_without_a_sandbox_the_grader_is_at_fault():
    grader = suite.task(SEED).grader
    assert isinstance(grader, HiddenTests)
    state = GradeState(answer=None, submitted=None, calls=(), stop_reason=StopReason.COMPLETED, sandbox=None)
    with pytest.raises(GraderFault, match="sandbox"):
        await grader(state)


def test_doctests():
    assert doctest.testmod(repair).failed == 0
