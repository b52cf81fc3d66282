"""Performs the scoring of an ended episode.

A grader that raises, hangs or gives what is no grade leaves the episode unscored, never at zero. Nor is the episode
sampled anew for it: grading is a function of what the policy did, so another try would only choose among answers those
that can be graded. What broke under the grader (its sandbox) is another matter.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import cast

from agentenv.core.boundary import is_its_own
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.giving_up import wait_until
from agentenv.core.origin import raised
from agentenv.core.sandbox import Sandbox
from agentenv.core.task import Grade, GradeState, Task
from agentenv.engine.effects import Score
from agentenv.envs.faults import report_of
from agentenv.errors import Fault, GraderFault, SandboxFault, UsageError
from agentenv.records.axes import Outcome, Scoring
from agentenv.records.codec import settled
from agentenv.records.episode import RewardComponent
from agentenv.records.facts import Scored

_LONGEST_DETAIL = 500


async def grade(effect: Score, task: Task, sandbox: Sandbox | None) -> Scored:
    """Run the task's grader, after every process of the policy is gone."""
    assert task.grader is not None, "the machine asks for a score only where there is a grader"
    began = time.perf_counter()
    deadline = Deadline.after(task.grade_timeout_s, f"grading {task.id}")
    state = GradeState(
        answer=effect.answer,
        submitted=effect.submitted,
        calls=effect.calls,
        stop_reason=effect.reason,
        sandbox=sandbox,
    )
    try:
        if sandbox is not None:
            await _emptied(sandbox, deadline, task)
        found = await wait_until(deadline, task.grader(state), whose=deadline.name)
        scored = _scored(found, task.id)
    except Fault as error:
        return _unscored(Scoring.FAILED, error, began)
    except BaseException as error:
        if not is_its_own(error):
            raise
        if isinstance(error, DeadlineReached) and error.deadline is deadline:
            return _timed_out(task, began)
        fault = GraderFault.permanent(f"the grader of {task.id} {raised(error)}")
        return _unscored(Scoring.FAILED, fault, began)
    if deadline.passed:  # it held the loop, so that nothing could stop it
        return _timed_out(task, began)
    return replace(scored, scoring_s=time.perf_counter() - began)


async def _emptied(sandbox: Sandbox, deadline: Deadline, task: Task) -> None:
    """End every process of the policy.

    Raises:
        SandboxFault: It is gone, or does not do so in time: none of the grader's doing.
    """
    try:
        await wait_until(deadline, sandbox.stop_processes(), whose=deadline.name)
    except DeadlineReached as reached:
        if reached.deadline is not deadline:
            raise
        raise SandboxFault(
            f"the sandbox did not end its processes within {task.grade_timeout_s:g} s, the grade_timeout_s of {task.id}"
        ) from reached


def _scored(found: object, task_id: str) -> Scored:
    """Make the fact of what a grader gave.

    Raises:
        GraderFault: It is no grade: another type, no component, a field of another type, a value that is no number.
    """
    grader = f"the grader of {task_id}"
    if not isinstance(found, Grade):
        raise GraderFault.permanent(f"{grader} gave a {type(found).__name__}; expected a Grade")
    try:
        fact = Scored(scoring=Scoring.SCORED, components=tuple(found.components), outcome=found.outcome)
        scored = cast("Scored", settled(fact, of=grader))
    except (UsageError, TypeError) as error:
        raise GraderFault.permanent(f"{grader} gave what is no Grade: {error}") from error
    if not scored.components:
        raise GraderFault.permanent(f"{grader} gave no reward component; the sum of none would be a reward of zero")
    for part in scored.components:
        if (part.value is None) is (part.status is Scoring.SCORED) or not math.isfinite(part.value or 0.0):
            raise GraderFault.permanent(
                f"{grader} gave component {part.name!r} the value {part.value} with status {part.status}; expected a "
                "finite number where it is scored, None where it is not"
            )
    return replace(scored, components=tuple(map(_shortened, scored.components)))


def _shortened(part: RewardComponent) -> RewardComponent:
    return part if len(part.detail) <= _LONGEST_DETAIL else replace(part, detail=part.detail[:_LONGEST_DETAIL])


def _timed_out(task: Task, began: float) -> Scored:
    message = (
        f"the grader of {task.id} did not end within {task.grade_timeout_s:g} s, its task's grade_timeout_s; make the "
        "grader faster, or give the task more"
    )
    return _unscored(Scoring.TIMED_OUT, GraderFault.permanent(message), began)


def _unscored(scoring: Scoring, fault: Fault, began: float) -> Scored:
    return Scored(
        scoring=scoring,
        components=(),
        outcome=Outcome.UNKNOWN,
        fault=report_of(fault),
        scoring_s=time.perf_counter() - began,
    )
