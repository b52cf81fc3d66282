"""Suites of seeded tasks, and the one door through which authors of suites come.

A suite is one function from a variant to a task. A whole one, in a file of its own, for
``agentenv collect path/to/sums.py``::

    from agentenv.toolkit.suite import Task, Variant, call, exact_answer, messages, scripted, seeded_suite
    from agentenv_tools.calculator import calculator


    @seeded_suite("sums", size=200, worked_examples=5)
    def suite(draw: Variant) -> Task:
        rng = draw.rng()
        a, b = rng.randint(100, 999), rng.randint(100, 999)
        return Task(
            id=draw.id,
            messages=messages(f"What is {a} + {b}?"),
            tools=(calculator,),
            grader=exact_answer(a + b),
            scripts={"reference": scripted(call("calculator", expression=f"{a} + {b}"), f"It is {a + b}.")},
        )

This module owns variants, the checks and hashes every task of a suite gets, and worked examples. What the helpers
do stands in their own modules.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentenv.core.hashing import content_hash, files_sha256, sha256_of
from agentenv.core.origin import raised
from agentenv.core.task import Grade, GradeState, OnText, Script, ScriptView, Task, Turn
from agentenv.errors import AgentEnvError, ConfigError, TaskFault
from agentenv.records.axes import BudgetKind, BudgetOwner
from agentenv.records.budgets import Budget
from agentenv.records.messages import Message
from agentenv.toolkit.answers import ExactNumber, ExactText, exact_answer, last_number
from agentenv.toolkit.demonstrate import demonstrate
from agentenv.toolkit.prompts import assistant, messages, rule, system, user
from agentenv.toolkit.scripts import call, nothing, scripted
from agentenv.toolkit.task_check import check_task

__all__ = [
    "ExactNumber",
    "ExactText",
    "Grade",
    "GradeState",
    "OnText",
    "Script",
    "ScriptView",
    "SeededSuite",
    "Task",
    "Turn",
    "Variant",
    "assistant",
    "call",
    "check_task",
    "exact_answer",
    "last_number",
    "messages",
    "nothing",
    "rule",
    "scripted",
    "seeded_suite",
    "system",
    "turn_budget",
    "user",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Which task of a suite is wanted. It decides the task alone: a maker reads nothing else that can change."""

    suite: str
    seed: int
    """Below the suite's size for tasks; from its size on for worked examples, which are therefore never tasks."""
    level: int

    @property
    def id(self) -> str:
        """The id of this variant's task: ``arithmetic/l2/000017``."""
        return f"{self.suite}/l{self.level}/{self.seed:06d}"

    def rng(self, stream: str = "") -> random.Random:
        """Give a generator that this variant alone decides; streams of different names are independent.

        Source: Mersenne Twister seeded with 64 bits of SHA-256; ``randint``, ``choice``, ``sample`` and ``shuffle``
        give the same sequence on every supported Python.
        """
        digest = hashlib.sha256(f"{self.id}/{stream}".encode()).digest()
        return random.Random(int.from_bytes(digest[:8], "big"))  # noqa: S311 - repeatable on purpose


Maker = Callable[[Variant], Task]


@dataclass(frozen=True, slots=True)
class SeededSuite:
    """A named set of tasks, each made by ``make`` from its variant alone.

    Invariant: equal seed and level give a task with an equal content hash, in every process and on every machine.
    """

    name: str
    size: int
    """Number of distinct variants of each level."""
    make: Maker = field(kw_only=True)
    levels: tuple[int, ...] = field(default=(1,), kw_only=True)
    worked_examples: int = field(default=0, kw_only=True)
    """How many demonstrations each level has; they are made of the variants after the last task."""
    sources: tuple[Path, ...] = field(default=(), kw_only=True)
    """Further files that make the tasks, beside the one with ``make``; they take part in the suite's hash."""

    def __post_init__(self) -> None:
        """Refuse settings that mean nothing.

        Raises:
            ConfigError: An empty name, no variants, levels that are not ascending.
        """
        if not self.name or self.name != self.name.strip() or "/" in self.name:
            raise ConfigError(f"a suite's name must be a plain word, got {self.name!r}")
        if self.size < 1 or self.worked_examples < 0:
            raise ConfigError(
                f"Suite {self.name!r} must have 1 variant or more and 0 worked examples or more, got size {self.size} "
                f"and worked_examples {self.worked_examples}"
            )
        if not self.levels or list(self.levels) != sorted(set(self.levels)):
            raise ConfigError(f"Suite {self.name!r} must have ascending levels, got {self.levels}")

    @property
    def sha256(self) -> str:
        """Hash of the suite's sources and settings."""
        settings = [self.name, self.size, self.levels, self.worked_examples]
        return sha256_of({"settings": settings, "make": self.make, "sources": files_sha256(self.sources)})

    def task(self, seed: int, level: int = 1) -> Task:
        """Make the task of a seed; seeds at or above ``size`` wrap around.

        Raises:
            ConfigError: No such level, a negative seed, or a task that breaks its contract.
            TaskFault: The suite's own code raised.
        """
        if seed < 0:
            raise ConfigError(f"the seed of a task of {self.name!r} must be 0 or more, got {seed}")
        return self._made(seed % self.size, level)

    def demonstrations(self, n: int, level: int = 1) -> tuple[tuple[Message, ...], ...]:
        """Give ``n`` worked examples: the reference script played against the real tools, never on a task's variant.

        Message ids are placeholders (``d0m0``, …): whoever composes the prompt numbers its messages. Call ids
        (``d0c0``, …) are unique and cannot meet those of an episode.

        Raises:
            ConfigError: The suite has fewer, or no such level.
            TaskFault: The suite's own code raised.
        """
        if not 0 <= n <= self.worked_examples:
            raise ConfigError(
                f"Suite {self.name!r} has {self.worked_examples} worked examples per level, asked for {n}; "
                "worked_examples=N in the suite declares more"
            )
        tasks = [self._made(self.size + index, level) for index in range(n)]
        return tuple(demonstrate(task, f"d{index}") for index, task in enumerate(tasks))

    def _made(self, seed: int, level: int) -> Task:
        if level not in self.levels:
            raise ConfigError(f"Suite {self.name!r} has no level {level}; it has {', '.join(map(str, self.levels))}")
        variant = Variant(suite=self.name, seed=seed, level=level)
        try:
            return _completed(self._task_of(self.make(variant), variant))
        except AgentEnvError:
            raise
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            raise TaskFault.permanent(
                f"Suite {self.name!r} could not make seed {seed} of level {level}: it {raised(error)}"
            ) from error

    def _task_of(self, made: object, variant: Variant) -> Task:
        if isinstance(made, Task):
            return made
        raise TaskFault.permanent(
            f"Suite {self.name!r} made a {type(made).__name__} of seed {variant.seed} of level {variant.level}; "
            "expected a Task"
        )


def seeded_suite(
    name: str,
    *,
    size: int,
    levels: tuple[int, ...] = (1,),
    worked_examples: int = 0,
    sources: tuple[Path, ...] = (),
) -> Callable[[Maker], SeededSuite]:
    """Turn a function from a variant to a task into a suite; the fields are those of `SeededSuite`."""

    def make_suite(make: Maker) -> SeededSuite:
        return SeededSuite(name, size, make=make, levels=levels, worked_examples=worked_examples, sources=sources)

    return make_suite


def turn_budget(turns: int) -> Budget:
    """Make the task's own limit of turns: running out of them terminates."""
    return Budget(kind=BudgetKind.TURNS, limit=turns, owner=BudgetOwner.TASK)


def _completed(task: Task) -> Task:
    """Fill in what follows from the rest, check the whole, and hash it."""
    task = replace(
        task,
        needs_sandbox=task.needs_sandbox or bool(task.files) or any(tool.needs_sandbox for tool in task.tools),
        scripts={"nothing": nothing, **task.scripts},
    )
    check_task(task)
    return replace(task, content_sha256=content_hash(task))
