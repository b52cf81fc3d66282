"""Plays a script of a task against its tools and a sandbox, and grades it: an episode without the environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Sandbox, SandboxProvider, SandboxSpec
from agentenv.core.task import Grade, GradeState, OnText, ScriptView, Task, Turn
from agentenv.core.tool import ToolContext
from agentenv.records.axes import Outcome, StopReason
from agentenv.records.budgets import Budget
from agentenv.records.messages import Message, Role, TaskEnd, ToolCall, ToolResult
from agentenv.toolkit import Toolbox

from tests.toolkit.kit import InMemoryBlobs

Forget = Callable[[Sequence[Message]], Sequence[Message]]
"""What a compressor leaves of the history."""

OUTPUT_CAP_BYTES = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of it."""

    task: Task
    messages: tuple[Message, ...]
    calls: tuple[tuple[ToolCall, ToolResult], ...]
    turns: int
    stop_reason: StopReason
    grade: Grade
    components: dict[str, float | None]

    @property
    def passed(self) -> bool:
        return self.grade.outcome is Outcome.SUCCESS

    def results_of(self, tool: str) -> list[ToolResult]:
        return [result for call, result in self.calls if call.name == tool]


async def play(task: Task, script: str, provider: SandboxProvider | None = None, forget: Forget = tuple) -> Played:
    """Play one script from the first message to the grade."""
    async with AsyncExitStack() as stack:
        sandbox: Sandbox | None = None
        if task.needs_sandbox:
            assert provider is not None
            sandbox = await provider.lease(SandboxSpec(files=task.files), Deadline.after(60, "lease"))
            await stack.enter_async_context(sandbox)
        resources = await stack.enter_async_context(AsyncExitStack())
        context = ToolContext(
            sandbox=sandbox, blobs=InMemoryBlobs(), output_cap_bytes=OUTPUT_CAP_BYTES, resources=resources
        )
        player = _Player(task, script, context, forget)
        reason = await player.run()
        await resources.aclose()
        if sandbox is not None:
            await sandbox.stop_processes()
        return await player.graded(reason)


class _Player:
    def __init__(self, task: Task, script: str, context: ToolContext, forget: Forget) -> None:
        self.task = task
        self.script = task.scripts[script]
        self.context = context
        self.forget = forget
        self.toolbox = Toolbox(task.tools)
        self.messages = list(task.messages)
        self.calls: list[tuple[ToolCall, ToolResult]] = []
        self.turn = 0
        self.answer: str | None = None

    async def run(self) -> StopReason:
        limit = _turn_limit(self.task.budgets)
        while self.turn < limit:
            said = self.script(self._view())
            if not said.calls and self.task.on_text is OnText.FINAL_ANSWER:
                self.turn += 1
                self.answer = said.text
                return StopReason.FINAL_ANSWER
            end = await self._act(said)
            if end is not None:
                return StopReason.COMPLETED if end is TaskEnd.COMPLETED else StopReason.FAILED
        return StopReason.TASK_BUDGET

    def _view(self) -> ScriptView:
        window = tuple(self.forget(self.messages))
        text = "\n".join(message.text for message in window)
        return ScriptView(turn=self.turn, prompt_text=text, messages=window, seed=0)

    async def _act(self, said: Turn) -> TaskEnd | None:
        calls = [
            ToolCall(id=f"t{self.turn}c{index}", name=name, arguments=dict(arguments))
            for index, (name, arguments) in enumerate(said.calls)
        ]
        results = await self.toolbox.run(
            calls, context=self.context, deadline=Deadline.after(60, "turn"), refuse_after=None
        )
        self._say(Message(id=self._next_id(), role=Role.ASSISTANT, text=said.text, calls=tuple(calls), turn=self.turn))
        for call, result in zip(calls, results, strict=True):
            self.calls.append((call, result))
            self._say(
                Message(
                    id=self._next_id(),
                    role=Role.TOOL,
                    text=result.text,
                    call_id=call.id,
                    name=call.name,
                    turn=self.turn,
                )
            )
        self.turn += 1
        return next((result.ends for result in results if result.ends is not None), None)

    def _next_id(self) -> str:
        return f"m{len(self.messages)}"

    def _say(self, message: Message) -> None:
        self.messages.append(message)

    async def graded(self, reason: StopReason) -> Played:
        assert self.task.grader is not None
        submitted = next((result.value for _, result in self.calls if result.ends is not None), None)
        answer = self.answer if self.answer is not None else (submitted if isinstance(submitted, str) else None)
        grade = await self.task.grader(
            GradeState(
                answer=answer,
                submitted=submitted,
                calls=tuple(self.calls),
                stop_reason=reason,
                sandbox=self.context.sandbox,
            )
        )
        return Played(
            task=self.task,
            messages=tuple(self.messages),
            calls=tuple(self.calls),
            turns=self.turn,
            stop_reason=reason,
            grade=grade,
            components={component.name: component.value for component in grade.components},
        )


def _turn_limit(budgets: Sequence[Budget]) -> int:
    return min((int(budget.limit) for budget in budgets if budget.kind == "turns"), default=100)
