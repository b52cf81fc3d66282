"""Runs the calls of one turn: finds tools, validates, bounds time and output, and turns failures into results.

Whose fault decides what happens. The policy's mistakes (unknown tool, invalid arguments, no call left) are results.
A tool that reports an error is a result. A tool that could not be run raises and ends the episode.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

import anyio

from agentenv.core.boundary import is_its_own
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.giving_up import wait_until
from agentenv.core.origin import raised
from agentenv.core.tool import InvalidArguments, Result, ServedTool, Tool, ToolContext
from agentenv.errors import Fault, ToolFault, UsageError
from agentenv.records.axes import CallStatus
from agentenv.records.messages import ToolCall, ToolResult, ToolSpec
from agentenv.toolkit import explain
from agentenv.toolkit.function_tool import FunctionTool
from agentenv.toolkit.off_loop import off_loop
from agentenv.toolkit.output import fit, json_value, visible
from agentenv.toolkit.result_check import as_result
from agentenv.toolkit.schema_check import problems_of

_FEW = 64
_NESTED = 1 << 20


class Toolbox:
    """The tools of one task. Stateless: one toolbox may serve many episodes at once."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        """Take tools in the order in which the policy is told of them.

        Raises:
            UsageError: Two have one name.
        """
        self.tools = tuple(tools)
        self.specs: tuple[ToolSpec, ...] = tuple(tool.spec for tool in self.tools)
        self._by_name: Mapping[str, Tool] = {tool.spec.name: tool for tool in self.tools}
        self._served = [tool for tool in self.tools if isinstance(tool, ServedTool)]
        if len(self._by_name) < len(self.tools):
            names = [spec.name for spec in self.specs]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise UsageError(f"tool names must differ; more than one tool is called {', '.join(twice)}")

    @property
    def needs_sandbox(self) -> bool:
        """Whether any tool does."""
        return any(tool.needs_sandbox for tool in self.tools)

    @property
    def sha256s(self) -> dict[str, str]:
        """Name to hash of each tool, for the manifest."""
        return {tool.spec.name: tool.sha256 for tool in self.tools}

    async def open(self, context: ToolContext, deadline: Deadline) -> None:
        """Start the servers that tools have of their own, before the policy can touch anything.

        Raises:
            Fault: One cannot be reached.
            DeadlineReached: ``deadline`` fired.
        """
        for tool in self._served:
            await wait_until(deadline, tool.open(context, deadline), whose=f"tool {tool.spec.name!r}")

    async def run(
        self, calls: Sequence[ToolCall], *, context: ToolContext, deadline: Deadline, refuse_after: int | None
    ) -> tuple[ToolResult, ...]:
        """Run the calls of one turn.

        Neighbouring calls of parallel tools run at once; all else runs in order. Once a call ended the task, those
        after it are not run (``cancelled``).

        Args:
            calls: What the policy asked for.
            context: The episode's.
            deadline: When the harness stops waiting.
            refuse_after: Calls left in the budget; those beyond are ``refused``. None: no limit.

        Returns:
            One result per call, in the order of the calls.

        Raises:
            Fault: A tool could not be run (`ToolFault`, `SandboxFault`), or output not stored (`HarnessFault`).
            DeadlineReached: ``deadline`` fired.
        """
        allowed = calls if refuse_after is None else calls[: max(0, refuse_after)]
        results: list[ToolResult] = []
        ended = False
        while len(results) < len(allowed) and not ended:
            if results:
                await _breathe(deadline)
            batch = self._batch(allowed, len(results))
            if len(batch) == 1:
                done = [await self._one(batch[0], context, deadline)]
            else:
                done = await self._at_once(batch, context, deadline)
            results += done
            ended = any(result.ends is not None for result in done)
        results += [_not_run(call, ended) for call in calls[len(results) :]]
        return tuple(results)

    def _batch(self, calls: Sequence[ToolCall], start: int) -> Sequence[ToolCall]:
        """Give the calls from ``start`` that run at once: neighbours that gain from it, else a single one."""
        end = start
        while end < len(calls) and self._gains(calls[end].name):
            end += 1
        return calls[start : max(end, start + 1)]

    def _gains(self, name: str) -> bool:
        tool = self._by_name.get(name)
        return tool is not None and tool.parallel and not (isinstance(tool, FunctionTool) and tool.inline)

    async def _at_once(self, calls: Sequence[ToolCall], context: ToolContext, deadline: Deadline) -> list[ToolResult]:
        """Run calls at once; the first to raise cancels the others, and its own exception is raised."""
        results: dict[int, ToolResult] = {}
        raised: list[Fault | DeadlineReached] = []

        async def run(position: int, call: ToolCall) -> None:
            try:
                results[position] = await self._one(call, context, deadline)
            except (Fault, DeadlineReached) as error:
                raised.append(error)
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for position, call in enumerate(calls):
                group.start_soon(run, position, call)
        if raised:
            raise raised[0]
        return [results[position] for position in range(len(calls))]

    async def _one(self, call: ToolCall, context: ToolContext, deadline: Deadline) -> ToolResult:
        tool = self._by_name.get(call.name)
        if tool is None:
            text = explain.unknown_tool(call.name, self._by_name)
            return _bounded(call, Result(text=text, status=CallStatus.UNKNOWN_TOOL), context, 0.0)
        started = time.monotonic()
        try:
            result = as_result(await _call(tool, call, context, deadline))
            duration_s = time.monotonic() - started
            return await off_loop(_size(result), _bounded, call, result, context, duration_s)
        except InvalidArguments as error:
            result = Result(text=str(error), status=CallStatus.INVALID_ARGUMENTS)
            duration_s = time.monotonic() - started
            return await off_loop(_size(result), _bounded, call, result, context, duration_s)
        except Fault:
            raise
        except DeadlineReached as error:
            if error.deadline is deadline:
                raise DeadlineReached(f"tool {call.name!r} was at work", deadline) from error
            raise
        except BaseException as error:
            if not is_its_own(error):
                raise
            raise ToolFault.permanent(f"tool {call.name!r} {visible(raised(error))}") from error


async def _breathe(deadline: Deadline) -> None:
    """Between two calls, let others have the loop: many calls that never wait would hold it, and miss the deadline.

    Raises:
        DeadlineReached: ``deadline`` has passed.
    """
    await asyncio.sleep(0)
    if deadline.passed:
        raise DeadlineReached(f"the deadline of {deadline.name} passed between two calls of one turn", deadline)


async def _call(tool: Tool, call: ToolCall, context: ToolContext, deadline: Deadline) -> Result:
    """Call one tool with checked arguments, for no longer than the harness waits."""
    if isinstance(tool, FunctionTool):
        if tool.inline:
            return await tool.call(call.arguments, context, deadline)
    elif problems := await problems_of(call.arguments, tool.spec.parameters):
        example = explain.example_of(tool.spec.parameters)
        raise InvalidArguments(explain.invalid(tool.spec.name, problems, example))
    return await wait_until(deadline, tool.call(call.arguments, context, deadline), whose=f"tool {call.name!r}")


def _size(result: Result) -> int:
    """Say how much a result is to go through: characters, or `_NESTED` where that is only known once it was done."""
    size = len(result.text)
    value = result.value
    inner = value.values() if isinstance(value, dict) and len(value) <= _FEW else (value,)
    for item in inner:
        if isinstance(item, str):
            size += len(item)
        elif item is not None and not isinstance(item, int | float):
            return _NESTED
    return size


def _bounded(call: ToolCall, result: Result, context: ToolContext, duration_s: float) -> ToolResult:
    """Make the record of a call, its text cut to the cap and its value such that every reader gets the same.

    Raises:
        TypeError: The value has no JSON form.
    """
    text, dropped, spill = fit(result.text, context.output_cap_bytes, context.blobs, result.full_output)
    return ToolResult(
        call_id=call.id,
        name=visible(call.name),
        status=result.status,
        text=text,
        exit_code=result.exit_code,
        duration_s=duration_s,
        bytes_dropped=result.bytes_dropped + dropped,
        full_output=spill or result.full_output,
        ends=result.ends,
        value=None if result.value is None else json_value(result.value),
    )


def _not_run(call: ToolCall, ended: bool) -> ToolResult:
    status, text = (
        (CallStatus.CANCELLED, "Not run: an earlier call of this turn ended the task.")
        if ended
        else (CallStatus.REFUSED, "Not run: no tool call is left in the budget.")
    )
    return ToolResult(call_id=call.id, name=visible(call.name), status=status, text=text)
