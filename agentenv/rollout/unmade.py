"""The record of an attempt that could not begin, because its task, its player or its episode could not be made."""

from __future__ import annotations

from typing import NamedTuple

from agentenv.core.origin import raised
from agentenv.engine.machine import EpisodeMachine
from agentenv.envs.faults import report_of
from agentenv.errors import Fault, TaskFault
from agentenv.records.axes import StopReason
from agentenv.records.facts import EpisodeEnded, EpisodeStarted, Stopped
from agentenv.records.tokens import SamplingParams
from agentenv.rollout.schedule import Slot


class UnmadeFacts(NamedTuple):
    """All the facts of such an attempt, in order."""

    started: EpisodeStarted
    stopped: Stopped
    ending: EpisodeEnded


def unmade(slot: Slot, attempt: int, *, suite: str, level: int, error: BaseException) -> UnmadeFacts:
    """Give the facts of such an attempt: it starts with nothing, and ends by whose fault that was.

    What is no `Fault` came from the task's own code. Making is a function of the seed, so trying again cannot help.
    """
    if isinstance(error, Fault):
        fault = error
    else:
        fault = TaskFault.permanent(f"{suite}: making seed {slot.task_seed} of level {level} {raised(error)}")
    started = EpisodeStarted(
        episode_id=slot.episode_id,
        attempt=attempt,
        suite=suite,
        task_id=f"{suite}/l{level}/{slot.task_seed:06d}",
        task_sha256="",
        task_seed=slot.task_seed,
        level=level,
        group_id=slot.group_id,
        member=slot.member,
        seed=slot.seed,
        messages=(),
        tools=(),
        budgets=(),
        constraints=(),
        context_window=None,
        sampling=SamplingParams(),
        ends_on_text=False,
        scoring_required=True,
        grade_on=(),
    )
    stopped = Stopped(reason=StopReason.FAULT, fault=report_of(fault))
    machine = EpisodeMachine()
    machine.feed(started)
    machine.feed(stopped)
    return UnmadeFacts(started, stopped, machine.ending(0.0))
