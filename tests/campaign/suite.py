"""The campaign's suite: a task for each seed, whose scripted player makes one kind of trouble and then goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import SandboxLimits
from agentenv.core.task import Grade, GradeState, Turn
from agentenv.core.tool import Result, ToolContext
from agentenv.records.axes import BudgetKind, BudgetOwner, CallStatus, Outcome
from agentenv.records.budgets import Budget
from agentenv.records.episode import RewardComponent
from agentenv.toolkit import sandbox_of, tool
from agentenv.toolkit.suite import SeededSuite, Task, Variant, call, messages, scripted

from agentenv_tools.python import python
from agentenv_tools.shell import shell
from tests.campaign.striking import strike
from tests.campaign.troubles import TROUBLES

MARK = "AGENTENV_CAMPAIGN"
"""Variable that every command sets, and its processes inherit, so that whatever outlives its sandbox is known."""
PROOF = "still here"
GRADE_TIMEOUT_S = 10.0

LIMITS = SandboxLimits(
    memory_bytes=256 << 20,
    total_memory_bytes=320 << 20,
    processes=64,
    tmp_bytes=16 << 20,
    workspace_bytes=16 << 20,
    workspace_files=500,
)
"""Small ones, which every bomb goes beyond."""


@tool(needs_sandbox=True)
async def heedless(command: str, context: ToolContext, deadline: Deadline) -> Result:
    """Run a command for as long as it likes, whatever time the episode has.

    Args:
        command: The command line.
        context: The episode's; filled in, not shown.
        deadline: When the harness stops waiting; filled in, not shown.
    """
    execution = await sandbox_of(context).run(command, deadline=deadline, timeout_s=1000)
    return Result(text="ended", status=CallStatus.OK, exit_code=execution.exit_code)


async def grade(state: GradeState) -> Grade:
    """Find out whether the sandbox is in order, with nobody of the policy's in it."""
    shown = any(PROOF in result.text for _, result in state.calls)
    processes = None if state.sandbox is None else (await state.sandbox.usage()).processes
    whole = shown and processes == 0
    detail = f"{PROOF}: {shown}; processes: {processes}"
    component = RewardComponent(name="whole", value=float(whole), source="environment", detail=detail)
    return Grade(components=(component,), outcome=Outcome.SUCCESS if whole else Outcome.FAILURE)


def campaign_suite(kinds: Sequence[str], token: str, *, allowance_s: float) -> SeededSuite:
    """Make the suite: seeds take the kinds of trouble in turn, and decide what each is like.

    Args:
        kinds: Names of troubles.
        token: Value of `MARK`.
        allowance_s: Added to the limit of every episode.
    """

    def make(draw: Variant) -> Task:
        trouble = TROUBLES[kinds[draw.seed % len(kinds)]]
        limit = Budget(kind=BudgetKind.WALL_CLOCK, limit=trouble.limit_s + allowance_s, owner=BudgetOwner.TASK)
        opening = call("shell", command="echo mine > witness; mkdir -p folder; echo begun")
        ending = call("shell", command=f"cd /; echo {PROOF}")
        turns = (opening, *trouble.turns(draw.rng()), ending)
        return Task(
            id=draw.id,
            messages=messages("Work in the sandbox."),
            tools=(shell, python, heedless, strike),
            files={"given": b"given\n"},
            budgets=(limit,),
            grader=grade,
            grade_timeout_s=GRADE_TIMEOUT_S,
            scripts={"reference": scripted(*(_marked(turn, token) for turn in turns), "Done.")},
        )

    return SeededSuite("campaign", 100_000, make=make)


def _marked(turn: Turn, token: str) -> Turn:
    ((name, arguments),) = turn.calls
    if "command" not in arguments:
        return turn
    return replace(turn, calls=((name, {**arguments, "command": f"export {MARK}={token}; {arguments['command']}"}),))
