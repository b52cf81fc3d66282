"""Makes a plain typed function a tool: schema, description, validation and error text come from its signature."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, overload

import anyio.to_thread
import msgspec

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.tool import InvalidArguments, Result, ToolContext, ToolFunction
from agentenv.errors import UsageError
from agentenv.records.axes import CallStatus
from agentenv.records.messages import TaskEnd, ToolSpec
from agentenv.toolkit import docstrings, explain, provenance
from agentenv.toolkit.context import sandbox_of
from agentenv.toolkit.schema import Parameters, parameters_of

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every tool-call format accepts. Source: the function name rule of the OpenAI and Mistral APIs."""
_CANNOT_CONVERT = (msgspec.ValidationError, ValueError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    name: str | None
    parallel: bool
    needs_sandbox: bool
    blocking: bool
    ends: TaskEnd | None
    timeout_s: float | None
    example: Mapping[str, Any] | None
    sources: tuple[ModuleType, ...]


class FunctionTool:
    """A `core.tool.Tool` made from a function by `tool`.

    Invariant: arguments that are any JSON object either reach the function converted to its annotations or raise
    `InvalidArguments` with a text for the policy.
    """

    def __init__(self, function: ToolFunction, options: _Options) -> None:
        _check(function, options)
        documentation = docstrings.parse(function.__doc__)
        if not documentation.description:
            raise UsageError(f"tool {function.__qualname__!r} has no docstring; the policy needs a description")
        self.function = function
        """The function as it was written, for direct calls."""
        self._options = options
        self._parameters: Parameters = parameters_of(function, documentation.arguments)
        self._model = self._parameters.model
        self.spec = ToolSpec(
            name=options.name or function.__name__,
            description=documentation.description,
            parameters=self._parameters.schema,
        )
        self.parallel = options.parallel
        self.needs_sandbox = options.needs_sandbox
        self.inline = not (options.blocking or inspect.iscoroutinefunction(function))
        """Whether a call never awaits: it neither needs nor heeds a deadline."""
        self.example = self._example(options.example)
        """Arguments of a valid call, shown when arguments are invalid."""
        self._sha256 = ""

    @property
    def sha256(self) -> str:
        """Hash of the spec, the file that defines the function, and the further ``sources``."""
        if not self._sha256:
            self._sha256 = provenance.tool_sha256(self.spec, self.function, self._options.sources)
        return self._sha256

    def __repr__(self) -> str:
        return f"FunctionTool({self.spec.name!r})"

    async def call(self, arguments: dict[str, Any], context: ToolContext, deadline: Deadline) -> Result:
        """Convert the arguments and run the function; see `core.tool.Tool.call`."""
        values = self.convert(arguments)
        if self.needs_sandbox:
            sandbox_of(context, f"tool {self.spec.name!r}")
        for name in self._parameters.contexts:
            values[name] = context
        if self.inline:
            for name in self._parameters.deadlines:
                values[name] = deadline
            returned = self.function(**values)
        else:
            returned = await self._awaited(values, deadline)
        if type(returned) is Result and self._options.ends is None:
            return returned
        return self._result(returned)

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert arguments to the function's annotations; converted ones pass unchanged.

        Raises:
            InvalidArguments: With a text for the policy: each argument at fault, and an example.
        """
        try:
            bound = msgspec.convert(arguments, self._model, strict=False)
        except _CANNOT_CONVERT:
            bound = self._convert_texts(arguments)
        return msgspec.structs.asdict(bound)

    def _convert_texts(self, arguments: dict[str, Any]) -> msgspec.Struct:
        """Try again with numbers as text where the signature asks for text: small models leave out the quotes."""
        properties = self.spec.parameters["properties"]
        texts = {
            name: str(value)
            for name, value in arguments.items()
            if properties.get(name, {}).get("type") == "string" and _is_short_number(value)
        }
        if texts:
            try:
                return msgspec.convert({**arguments, **texts}, self._model, strict=False)
            except _CANNOT_CONVERT:
                pass
        raise InvalidArguments(explain.invalid(self.spec.name, self._problems(arguments), self.example))

    def _problems(self, arguments: dict[str, Any]) -> list[str]:
        """Say what is wrong with each argument; at least one line."""
        properties: dict[str, Any] = self.spec.parameters["properties"]
        required = self.spec.parameters.get("required", ())
        problems: list[str] = []
        for name, kind in self._parameters.types.items():
            if name in arguments:
                try:
                    msgspec.convert(arguments[name], kind, strict=False)
                except _CANNOT_CONVERT as error:
                    problems.append(explain.wrong(name, properties[name], arguments[name], _inner_place(error)))
            elif name in required:
                problems.append(explain.missing(name, properties[name]))
        problems += explain.all_unexpected([str(name) for name in arguments if name not in properties], properties)
        return problems or ["the arguments cannot be read together"]

    async def _awaited(self, values: dict[str, Any], deadline: Deadline) -> Any:
        """Run what awaits or blocks, under the tool's own time limit if it has one."""
        own = self._options.timeout_s
        inner = deadline if own is None else deadline.sooner(own, f"tool {self.spec.name!r}")
        for name in self._parameters.deadlines:
            values[name] = inner
        if inner is deadline:
            return await self._run(values)
        try:
            async with inner.enforce():
                return await self._run(values)
        except DeadlineReached as reached:
            if reached.deadline is not inner:
                raise
            return Result(text=f"The call was stopped after its limit of {own:g} s.", status=CallStatus.TIMEOUT)

    async def _run(self, values: dict[str, Any]) -> Any:
        if self._options.blocking:
            return await anyio.to_thread.run_sync(lambda: self.function(**values), abandon_on_cancel=True)
        return await self.function(**values)

    def _result(self, returned: Any) -> Result:
        """Make a result of what the function returned."""
        ends = self._options.ends
        if not isinstance(returned, Result):
            return Result(text=_rendered(returned), ends=ends, value=None if ends is None else returned)
        if ends is None or returned.ends is not None or returned.status is not CallStatus.OK:
            return returned
        return replace(returned, ends=ends)

    def _example(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Take the author's example if it is valid, else make one up."""
        if given is None:
            return explain.example_of(self.spec.parameters)
        try:
            msgspec.convert(dict(given), self._model)
        except _CANNOT_CONVERT as error:
            raise UsageError(f"tool {self.spec.name!r}: its example is not a valid call: {error}") from error
        return dict(given)


@overload
def tool(function: ToolFunction, /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str | None = None,
    parallel: bool = False,
    needs_sandbox: bool = False,
    blocking: bool = False,
    ends: TaskEnd | None = None,
    timeout_s: float | None = None,
    example: Mapping[str, Any] | None = None,
    sources: tuple[ModuleType, ...] = (),
) -> Callable[[ToolFunction], FunctionTool]: ...


def tool(  # noqa: PLR0913 - options of a decorator, each with its default
    function: ToolFunction | None = None,
    /,
    *,
    name: str | None = None,
    parallel: bool = False,
    needs_sandbox: bool = False,
    blocking: bool = False,
    ends: TaskEnd | None = None,
    timeout_s: float | None = None,
    example: Mapping[str, Any] | None = None,
    sources: tuple[ModuleType, ...] = (),
) -> FunctionTool | Callable[[ToolFunction], FunctionTool]:
    """Make a typed function, sync or async, a tool.

    The docstring gives the description and, in its ``Args`` section, a text for each argument. A parameter annotated
    `ToolContext` or `Deadline` is filled in by the harness and not shown. The function returns a `str`, anything that
    JSON can carry (shown as JSON; None as ``done``), or a `Result`; to report an error to the policy it returns
    ``Result(text=..., status=CallStatus.ERROR)``.

    Args:
        function: What to decorate, where there are no options.
        name: 1 to 64 letters, digits, ``_`` or ``-``; None takes the function's.
        parallel: Whether calls of one turn may run at once.
        needs_sandbox: Whether a call without a sandbox is a fault.
        blocking: A sync function that may block: each call runs in a thread. A thread cannot be stopped; after a
            deadline the call is given up and its thread ends by itself.
        ends: How a call that reports no error ends the task; what the function returns goes to the grader.
        timeout_s: The tool's own limit, for async and blocking functions; reaching it is a result, not a fault.
        example: Arguments of a valid call for error texts; None makes one up from the schema.
        sources: Further modules whose source belongs to `FunctionTool.sha256`.

    Raises:
        UsageError: The function cannot be a tool; the text says why.

    >>> @tool
    ... def add(a: int, b: int = 1) -> int:
    ...     '''Add two integers.'''
    ...     return a + b
    >>> add.spec.parameters["required"]
    ['a']
    """
    options = _Options(
        name=name,
        parallel=parallel,
        needs_sandbox=needs_sandbox,
        blocking=blocking,
        ends=ends,
        timeout_s=timeout_s,
        example=example,
        sources=sources,
    )
    if function is None:
        return lambda function: FunctionTool(function, options)
    return FunctionTool(function, options)


def _check(function: ToolFunction, options: _Options) -> None:
    """Refuse what cannot be a tool.

    Raises:
        UsageError: With the reason.
    """
    if (
        not inspect.isfunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        raise UsageError(f"a tool is made from a plain function, not from {function!r}")
    name = options.name or function.__name__
    if not _NAME.fullmatch(name):
        raise UsageError(f"tool name {name!r} must be 1 to 64 letters, digits, '_' or '-'; pass another as name=")
    is_async = inspect.iscoroutinefunction(function)
    if options.blocking and is_async:
        raise UsageError(f"tool {name!r} is async: it cannot be blocking=True as well")
    if options.timeout_s is None:
        return
    if not options.timeout_s > 0:
        raise UsageError(f"tool {name!r}: timeout_s must be positive, not {options.timeout_s}")
    if not (is_async or options.blocking):
        raise UsageError(f"tool {name!r} runs inline and cannot be timed out; make it async or blocking=True")


def _rendered(value: Any) -> str:
    """Show a returned value to the policy.

    Raises:
        TypeError: JSON cannot carry it.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return "done"
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)


def _is_short_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and value.bit_length() <= 1024)


def _inner_place(error: Exception) -> str:
    """Say where inside a nested argument the fault is; empty at its top."""
    text = str(error)
    return text if " - at `$" in text else ""
