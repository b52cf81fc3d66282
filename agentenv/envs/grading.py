"""Performs the scoring of an ended episode. A grader that raises or hangs leaves it unscored, never at zero."""

from __future__ import annotations

import time

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.sandbox import Sandbox
from agentenv.core.task import GradeState, Task
from agentenv.engine.effects import Score
from agentenv.envs.faults import report_of
from agentenv.errors import Fault, GraderFault
from agentenv.records.axes import Outcome, Scoring
from agentenv.records.episode import FaultReport
from agentenv.records.facts import Scored


async def grade(effect: Score, task: Task, sandbox: Sandbox | None) -> Scored:
    """Run the task's grader, after every process of the policy is gone."""
    assert task.grader is not None, "the machine asks for a score only where there is a grader"
    began = time.perf_counter()
    deadline = Deadline.after(task.grade_timeout_s, f"grading {task.id}")
    try:
        async with deadline.enforce():
            if sandbox is not None:
                await sandbox.stop_processes()
            found = await task.grader(
                GradeState(
                    answer=effect.answer,
                    submitted=effect.submitted,
                    calls=effect.calls,
                    stop_reason=effect.reason,
                    sandbox=sandbox,
                )
            )
    except DeadlineReached as error:
        message = f"the grader of {task.id} did not end within {task.grade_timeout_s:g} s ({error})"
        return _unscored(Scoring.TIMED_OUT, report_of(GraderFault(message)), began)
    except Fault as error:
        return _unscored(Scoring.FAILED, report_of(error), began)
    except Exception as error:  # noqa: BLE001 - the boundary to the task's own code
        fault = GraderFault(f"the grader of {task.id} raised {type(error).__name__}: {error}")
        return _unscored(Scoring.FAILED, report_of(fault), began)
    return Scored(
        scoring=Scoring.SCORED,
        components=found.components,
        outcome=found.outcome,
        scoring_s=time.perf_counter() - began,
    )


def _unscored(scoring: Scoring, fault: FaultReport, began: float) -> Scored:
    return Scored(
        scoring=scoring,
        components=(),
        outcome=Outcome.UNKNOWN,
        fault=fault,
        scoring_s=time.perf_counter() - began,
    )
