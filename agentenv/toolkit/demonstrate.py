"""Worked examples: a task's reference script, played against the real tools and written down as messages."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace

from agentenv.core.blobs import BlobWriter
from agentenv.core.deadline import Deadline
from agentenv.core.task import GradeState, ScriptView, Task, Turn
from agentenv.core.tool import ToolContext
from agentenv.errors import ConfigError
from agentenv.records.axes import CallStatus, Outcome, StopReason
from agentenv.records.messages import Message, Role, Spill, ToolCall, ToolResult

_MOST_TURNS = 64
_MOST_SECONDS = 30.0
_OUTPUT_CAP_BYTES = 64 << 10


def demonstrate(task: Task, prefix: str) -> tuple[Message, ...]:
    """Play the reference script of a task that needs no sandbox, and give what was said.

    Args:
        task: Its user messages come first; its system message is left out.
        prefix: Put before every message and call id. Message ids are placeholders: whoever composes a prompt
            numbers its messages.

    Returns:
        The task's messages, pinned to nothing, then assistant turns with the real results of their calls, up to the
        final answer.

    Raises:
        ConfigError: The task needs a sandbox, a call failed, or the answer did not pass the task's own grader.
    """
    if task.needs_sandbox:
        raise ConfigError(f"Task {task.id} needs a sandbox; worked examples are made of tasks without one")
    with ThreadPoolExecutor(max_workers=1) as thread:  # the caller may itself run in an event loop
        return thread.submit(asyncio.run, _play(task, prefix)).result()


async def _play(task: Task, prefix: str) -> tuple[Message, ...]:
    said = [replace(message, pinned=False) for message in task.messages if message.role is not Role.SYSTEM]
    done: list[tuple[ToolCall, ToolResult]] = []
    async with AsyncExitStack() as resources:
        context = ToolContext(sandbox=None, blobs=_NoBlobs(), output_cap_bytes=_OUTPUT_CAP_BYTES, resources=resources)
        for index in range(_MOST_TURNS):
            turn = task.scripts["reference"](_view(index, said))
            calls = _calls(turn, f"{prefix}c{len(done)}")
            said.append(Message(id="", role=Role.ASSISTANT, text=turn.text, calls=calls))
            if not calls:
                await _check_grade(task, answer=turn.text, calls=done)
                return _numbered(said, prefix)
            for call in calls:
                result = await _carry_out(task, call, context)
                done.append((call, result))
                said.append(Message(id="", role=Role.TOOL, text=result.text, call_id=call.id, name=call.name))
    raise ConfigError(f"the reference of task {task.id} gave no final answer within {_MOST_TURNS} turns")


def _view(index: int, said: list[Message]) -> ScriptView:
    text = "\n".join(message.text for message in said)
    return ScriptView(turn=index, prompt_text=text, messages=tuple(said), seed=0)


def _calls(turn: Turn, stem: str) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(id=stem if index == 0 else f"{stem}_{index}", name=name, arguments=dict(arguments))
        for index, (name, arguments) in enumerate(turn.calls)
    )


async def _carry_out(task: Task, call: ToolCall, context: ToolContext) -> ToolResult:
    tool = next((tool for tool in task.tools if tool.spec.name == call.name), None)
    if tool is None:
        raise ConfigError(f"the reference of task {task.id} calls {call.name!r}, which is no tool of the task")
    result = await tool.call(call.arguments, context, Deadline.after(_MOST_SECONDS, "demonstration"))
    if result.status is not CallStatus.OK:
        raise ConfigError(f"the reference of task {task.id} called {call.name} and got an error: {result.text:.200}")
    return ToolResult(call_id=call.id, name=call.name, status=result.status, text=result.text, value=result.value)


async def _check_grade(task: Task, *, answer: str, calls: list[tuple[ToolCall, ToolResult]]) -> None:
    if task.grader is None:
        return
    state = GradeState(
        answer=answer, submitted=None, calls=tuple(calls), stop_reason=StopReason.FINAL_ANSWER, sandbox=None
    )
    grade = await task.grader(state)
    if grade.outcome is not Outcome.SUCCESS:
        details = "; ".join(component.detail for component in grade.components)
        raise ConfigError(f"the reference of task {task.id} does not pass its grader: {details}")


def _numbered(said: list[Message], prefix: str) -> tuple[Message, ...]:
    return tuple(replace(message, id=f"{prefix}m{index}") for index, message in enumerate(said))


class _NoBlobs:
    """A sink for results that are short by nature."""

    def open(self) -> BlobWriter:
        raise ConfigError(f"a worked example must fit {_OUTPUT_CAP_BYTES} bytes per result")

    def put(self, content: bytes) -> Spill:
        raise ConfigError(f"a worked example must fit {_OUTPUT_CAP_BYTES} bytes per result, got {len(content)} bytes")
