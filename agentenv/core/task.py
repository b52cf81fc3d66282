"""The contract of tasks and suites: an immutable problem with its grader, and a named set of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from agentenv.core.sandbox import Sandbox
from agentenv.core.tool import Tool
from agentenv.records.axes import Outcome, StopReason
from agentenv.records.budgets import Budget
from agentenv.records.constraints import Constraint
from agentenv.records.episode import RewardComponent
from agentenv.records.messages import Message, ToolCall, ToolResult


class OnText(StrEnum):
    """What a reply without any tool call means to a task."""

    FINAL_ANSWER = "final_answer"
    """The policy stopped acting: the episode terminates with it."""
    OBSERVE = "observe"
    """A step like any other, with the parse error as its observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a script says in one turn."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, object]], ...] = ()
    """(tool name, arguments) of each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptView:
    """What a script may look at: what a policy would see."""

    turn: int
    prompt_text: str
    """Decoded prompt ids."""
    messages: tuple[Message, ...]
    """The window the prompt was rendered from."""
    seed: int


Script = Callable[[ScriptView], Turn]
"""A scripted policy's answer to one prompt. Pure: the same view gives the same turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeState:
    """What a grader may look at, after every process of the policy is gone."""

    answer: str | None
    """Text of the last reply, if it made no call; else what was submitted; else None."""
    submitted: object | None
    """What a terminating tool handed over (``submit``); None if none did."""
    calls: tuple[tuple[ToolCall, ToolResult], ...]
    """Every executed call with its result, in order."""
    stop_reason: StopReason
    sandbox: Sandbox | None
    """A sandbox over the same workspace with no process of the policy in it; None if the task needs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What a grader found."""

    components: tuple[RewardComponent, ...]
    outcome: Outcome


Grader = Callable[[GradeState], Awaitable[Grade]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One immutable problem."""

    id: str
    """Unique in the suite, stable across runs: ``arithmetic/l2/000017``."""
    messages: tuple[Message, ...]
    """System and first user messages, with ids ``m0``, ``m1``, …"""
    tools: tuple[Tool, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Workspace at the start: relative path to content. A task with files gets a sandbox."""
    needs_sandbox: bool = False
    network: tuple[str, ...] = ()
    """Hosts that the commands of its sandbox may reach, as in ``SandboxSpec.network``; empty: none. A kind of sandbox
    that cannot hold them to that is refused before a run begins, and where there is no run when the episode starts."""
    budgets: tuple[Budget, ...] = ()
    """Budgets that are part of the task (owner ``task``)."""
    constraints: tuple[Constraint, ...] = ()
    grader: Grader | None = None
    """None: no score is required."""
    grade_timeout_s: float = 60.0
    """Longest that grading may take. It begins after the episode's own limit has been kept, and adds to it: part of the
    grace of law 12, and of ``elapsed_s``, not charged to a wall-clock budget."""
    grade_on: frozenset[StopReason] = frozenset(StopReason) - {
        StopReason.FAULT,
        StopReason.CANCELLED,
        StopReason.COLLECTOR_PAUSE,
    }
    """Endings that are graded; the others are left unscored (``not_run``)."""
    on_text: OnText = OnText.FINAL_ANSWER
    scripts: Mapping[str, Script] = field(default_factory=dict[str, Script])
    """``reference`` must pass the grader, ``nothing`` must not; more may exist."""
    content_sha256: str = ""
    """Hash of everything that makes the task; `content_hash` computes it."""


def needs_sandbox(task: Task) -> bool:
    """Say whether a task has files or tools that live in a sandbox."""
    return task.needs_sandbox or bool(task.files) or any(tool.needs_sandbox for tool in task.tools)


class Suite(Protocol):
    """A named set of tasks, each decided by its seed alone."""

    @property
    def name(self) -> str:
        """Registered name."""
        ...

    @property
    def size(self) -> int:
        """Number of distinct variants; seeds at or above it wrap around."""
        ...

    @property
    def levels(self) -> tuple[int, ...]:
        """Difficulty levels, lowest first; ``(1,)`` if there is one."""
        ...

    @property
    def sha256(self) -> str:
        """Hash of the suite's source and settings."""
        ...

    def task(self, seed: int, level: int = 1) -> Task:
        """Make the task of a seed. The same arguments give a task with the same hash, on every machine.

        Raises:
            ConfigError: No such level.
        """
        ...

    def demonstrations(self, n: int, level: int = 1) -> Sequence[tuple[Message, ...]]:
        """Give ``n`` worked examples (user, assistant with calls, tool, …) that the prompt may include.

        Raises:
            ConfigError: The suite has fewer.
        """
        ...
