"""Grades a repaired project by checks that are nowhere in its workspace.

What stands between a policy and a verdict it did not earn:

- The inputs of the checks reach the sandbox through the standard input of a process that begins after every process
  of the policy is gone; the expected answers never reach it. They are compared here, outside.
- Each check has a process of its own, in Python's isolated mode without site packages, so no ``sitecustomize``,
  ``conftest``, environment variable or user folder takes part. The workspace comes last on the module path: nothing
  in it can stand in for a standard module. Compiled files in it are not read: sources count.
- An answer counts only in one line that begins with a number drawn for this process. A module that ends the process,
  prints, or writes such a line itself gains nothing: what counts are the values, and only code that works them out
  from the inputs has them.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any

from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Execution, Sandbox
from agentenv.core.task import Grade, GradeState
from agentenv.errors import GraderFault
from agentenv.records.axes import Outcome
from agentenv.records.episode import RewardComponent

GRADE_TIMEOUT_S = 120.0
_GRACE_S = 10.0

_PROGRAM = """
import json, os, sys
job = json.load(sys.stdin)
answer = os.dup(1)
null = os.open(os.devnull, os.O_RDWR)
for stream in (0, 1, 2):
    os.dup2(null, stream)
sys.pycache_prefix = "/nowhere"
sys.path.append(os.getcwd())
import importlib
module = importlib.import_module(job["module"])
seen = []
for function, arguments in job["calls"]:
    try:
        entry = {"value": getattr(module, function)(*arguments)}
    except Exception as error:
        entry = {"raises": type(error).__name__}
    try:
        seen.append(json.loads(json.dumps({**entry, "arguments": arguments})))
    except Exception as error:
        seen.append({"unwritable": type(error).__name__})
os.write(answer, (job["nonce"] + json.dumps(seen) + "\\n").encode())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredCheck:
    """Calls into one module, and what a right module answers."""

    module: str
    calls: tuple[tuple[str, tuple[Any, ...]], ...]
    expected: tuple[dict[str, Any], ...]
    """One entry per call: ``value`` or ``raises``, and ``arguments`` after the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenTests:
    """Gives 1.0 if every check passes, else 0.0. Stops at the first that does not."""

    checks: tuple[AnsweredCheck, ...]
    check_timeout_s: float = 20.0
    """Seconds for one check. A right module takes a few milliseconds; the rest is for a busy machine."""

    async def __call__(self, state: GradeState) -> Grade:
        if state.sandbox is None:
            raise GraderFault.permanent("hidden tests run in a sandbox, and there is none")
        passed = 0
        missed = ""
        for check in self.checks:
            if problem := await _problem(state.sandbox, check, self.check_timeout_s):
                missed = f"; {check.module}.{check.calls[0][0]}: {problem}"
                break
            passed += 1
        right = passed == len(self.checks)
        component = RewardComponent(
            name="hidden_tests",
            value=1.0 if right else 0.0,
            source="test",
            detail=f"{passed} of {len(self.checks)} checks passed{' before the first miss' if missed else ''}{missed}",
        )
        return Grade(components=(component,), outcome=Outcome.SUCCESS if right else Outcome.FAILURE)


async def _problem(sandbox: Sandbox, check: AnsweredCheck, timeout_s: float) -> str:
    """Run one check; empty if it passes, else what is wrong in a few words."""
    nonce = secrets.token_hex(16)
    job = json.dumps({"nonce": nonce, "module": check.module, "calls": check.calls})
    execution = await sandbox.run(
        ["python3", "-I", "-S", "-B", "-c", _PROGRAM],
        deadline=Deadline.after(timeout_s + _GRACE_S, "hidden test"),
        timeout_s=timeout_s,
        stdin=job.encode(),
    )
    if execution.timed_out:
        return f"no answer within {timeout_s:g} s"
    answers = _answers(execution, nonce)
    if answers is None:
        return f"no answer, exit code {execution.exit_code}"
    return "" if _same(answers, check.expected) else "wrong answer"


def _answers(execution: Execution, nonce: str) -> Any:
    """Read the one line that is an answer; None if there is none, more than one, or it is unreadable."""
    lines = (execution.stdout.head + execution.stdout.tail).decode("utf-8", "replace").splitlines()
    found = [line.removeprefix(nonce) for line in lines if line.startswith(nonce)]
    if len(found) != 1:
        return None
    try:
        return json.loads(found[0])
    except (ValueError, RecursionError):
        return None


def _same(answers: Any, expected: tuple[dict[str, Any], ...]) -> bool:
    """Compare by spelling, which tells 1, 1.0 and true apart and keeps the order of keys out of it."""
    try:
        return json.dumps(answers, sort_keys=True) == json.dumps(list(expected), sort_keys=True)
    except RecursionError:
        return False
