"""``code``: a small Python in a process of its own, without a sandbox: Monty, an interpreter for code of models.

A call is a function of its code alone: it begins with nothing, the clock stands still, random numbers begin with a
seed that was set, there are no files, no environment, no network, no host functions. So calls of one turn run at once,
and the same code gives the same result in every run. State that is to last is what ``python`` is for.

Source: the documentation of ``pydantic-monty`` 1.4. Known limit of its: a subset of Python (no class inheritance, no
generators, a small part of the standard library).
"""

from __future__ import annotations

import asyncio
import importlib
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from agentenv.core.deadline import Deadline
from agentenv.core.tool import Result, ToolContext
from agentenv.errors import ConfigError
from agentenv.records.axes import CallStatus
from agentenv.toolkit import FunctionTool, tool

from agentenv_tools.arguments import text_argument, within

DEFAULT_TIMEOUT_S = 5.0
DEFAULT_MEMORY_BYTES = 64 << 20
DEFAULT_NOW = datetime(2025, 1, 1, tzinfo=UTC)
_MODULE = "pydantic_monty"
_PROCESSES = 2
"""Workers of one episode; further calls of a turn wait."""
_PRINTED_BYTES = 1 << 20
_GRACE_S = 1.0
"""Seconds after its time limit at which a worker that goes on is killed."""
_NAME = "<code>"
_UNAVAILABLE = (
    "The tool is unavailable: its interpreter is not installed. Whoever runs this has to install it: "
    "pip install 'pydantic-monty>=1.4,<1.5'"
)


def code_tool(
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    now: datetime = DEFAULT_NOW,
    seed: int = 0,
) -> FunctionTool:
    """Make the tool for a task's ``tools``.

    Args:
        timeout_s: Seconds of running that a call may take.
        memory_bytes: Most memory of its values.
        now: Where the clock stands; with a time zone.
        seed: Of its random numbers.

    Raises:
        ConfigError: A number cannot work, or the time has no zone.
    """
    _check(timeout_s, memory_bytes, now)
    policy = {
        "datetime": now,
        "timezone": "utc",
        "sleep": "zero",
        "process_time": "zero",
        "random_start": {"seed": seed},
    }

    async def code(code: str, context: ToolContext, deadline: Deadline) -> Result:
        monty = await _monty()
        pool = None if monty is None else await _pool(monty, context)
        if monty is None or pool is None:
            return Result(text=_UNAVAILABLE, status=CallStatus.UNAVAILABLE)
        code = text_argument("code", code)
        limits = {"max_feed_duration_secs": within(timeout_s, deadline), "max_memory": memory_bytes}
        return await _run(monty, pool.checkout(script_name=_NAME, limits=limits, os_policy=policy), code)

    code.__doc__ = f"""Run Python code that computes something; what it prints and the value of its last line are shown.

    Every call begins afresh: no variables of earlier calls, no files, no network, a part of the language and of the
    standard library (no inheritance, no yield). The clock stands at {now.isoformat()}, random numbers begin with seed
    {seed}. A call may take {timeout_s:g} seconds and {memory_bytes >> 20:,} MiB of memory.

    Args:
        code: One or more statements.
        context: The episode's; filled in, not shown.
        deadline: When the harness stops waiting; filled in, not shown.
    """
    return tool(parallel=True, example={"code": "sum(n * n for n in range(10))"})(code)


def _check(timeout_s: float, memory_bytes: int, now: datetime) -> None:
    if not timeout_s > 0 or memory_bytes < 1 << 20:
        raise ConfigError(
            f"code needs a timeout_s above 0 and memory_bytes of 1 MiB or more, got {timeout_s} and {memory_bytes:,}"
        )
    if now.tzinfo is None:
        raise ConfigError(f"code needs a time with a zone, got now={now.isoformat()}")


async def _monty() -> ModuleType | None:
    """Load the interpreter; None if it is not installed."""
    try:
        return await asyncio.to_thread(importlib.import_module, _MODULE)
    except ImportError:
        return None


async def _pool(monty: ModuleType, context: ToolContext) -> Any:
    """Give the episode's workers; None if their program is not installed."""
    pool = context.state.get("code")
    if pool is None:
        try:
            made = monty.AsyncMonty(max_processes=_PROCESSES, feed_duration_limit_grace=_GRACE_S)
            pool = await context.resources.enter_async_context(made)
        except FileNotFoundError:
            return None
        context.state["code"] = pool
    return pool


async def _run(monty: ModuleType, checkout: Any, code: str) -> Result:
    """Run a piece of code in a session of its own."""
    printed = monty.CollectString(max_bytes=_PRINTED_BYTES)
    status = CallStatus.ERROR
    try:
        async with checkout as session:
            value = await session.feed_run(code, print_callback=printed)
        shown = "" if value is None else f"{await asyncio.to_thread(repr, value)}\n"
        return Result(text=f"{printed.output}{shown}" or "[no output]")
    except monty.MontyCrashedError as error:
        if error.timed_out:
            status = CallStatus.TIMEOUT
        said = f"The interpreter ended: {error}"
    except monty.MontyRuntimeError as error:
        # Its own time limit comes without a place in the code; a TimeoutError that the code raises has one.
        if isinstance(error.exception(), TimeoutError) and not error.traceback():
            status = CallStatus.TIMEOUT
        said = error.display()
    except monty.MontySyntaxError as error:
        said = error.display()
    except (ValueError, RecursionError) as error:  # such as a whole number of 5,000 digits
        said = f"The value of the last line cannot be shown: {error}"
    return Result(text=f"{printed.output}{said}", status=status)


code = code_tool()
"""With 5 seconds and 64 MiB, at the start of 2025."""
