"""``code``: a function of its code alone, within its limits, whatever the code does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pydantic_monty
import pytest
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.tool import ToolContext
from agentenv.errors import ConfigError
from agentenv.records.axes import CallStatus
from agentenv.toolkit import FunctionTool, Toolbox

from agentenv_tools.code import code, code_tool
from tests.toolkit.kit import NO_DEADLINE, call_one, calls_of, make_context


@pytest.fixture
async def context() -> AsyncIterator[ToolContext]:
    made = make_context()
    async with made.resources:
        yield made


async def run(context: ToolContext, text: str, tool: FunctionTool = code) -> tuple[CallStatus, str]:
    result = await call_one(tool, context, code=text)
    return result.status, result.text


async def test_prints_and_the_last_value_are_shown(context: ToolContext) -> None:
    assert await run(context, "print('a')\n[n * n for n in range(3)]") == (CallStatus.OK, "a\n[0, 1, 4]\n")
    assert await run(context, "x = 1") == (CallStatus.OK, "[no output]")


async def test_every_call_begins_afresh(context: ToolContext) -> None:
    await run(context, "x = 1")
    status, text = await run(context, "x")
    assert status is CallStatus.ERROR
    assert "NameError" in text


async def test_the_same_code_gives_the_same_result_in_every_episode(context: ToolContext) -> None:
    text = (
        "import random, time, datetime\n[random.random() for _ in range(3)], time.time(), str(datetime.datetime.now())"
    )
    first = await run(context, text)
    other = make_context()
    async with other.resources:
        assert await run(other, text) == first == await run(context, text)
    assert "1735689600.0, '2025-01-01 00:00:00'" in first[1]
    later = code_tool(seed=1, now=datetime(2030, 1, 1, tzinfo=UTC))
    assert (await run(context, text, later))[1] != first[1]
    assert "2030-01-01" in (await run(context, text, later))[1]


async def test_sleeping_takes_no_time(context: ToolContext) -> None:
    assert await run(context, "import time\ntime.sleep(100)\ntime.time()") == (CallStatus.OK, "1735689600.0\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("print('before')\n1/0", "before\nTraceback (most recent call last):"),
        ("def (:", "SyntaxError"),
        ("'a' * 10**10", "MemoryError"),
        ("x = []\nwhile True: x.append('y' * 1000)", "MemoryError"),
        ("def f(): return f()\nf()", "RecursionError"),
        ("10 ** 5000", "cannot be shown"),
        ("open('/etc/passwd').read()", "PermissionError"),
        ("import subprocess", "ModuleNotFoundError"),
        ("import os\nos.environ['HOME']", "not supported"),
        ("raise TimeoutError('mine')", "TimeoutError: mine"),
        ("(" * 10_000, "SyntaxError"),
    ],
)
async def test_what_the_code_does_is_its_own_affair(context: ToolContext, text: str, says: str) -> None:
    await check_own_affair(context, text, says, code_tool(timeout_s=60))  # a busy machine fills its memory slowly


async def test_printing_without_end_is_told_at_the_time_limit(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output is bounded from the first; the code goes on until its time is up."""
    monkeypatch.setattr("agentenv_tools.code._GRACE_S", 60.0)
    await check_own_affair(context, "while True: print('x' * 1000)", "MemoryError", code_tool(timeout_s=3))


async def check_own_affair(context: ToolContext, text: str, says: str, tool: FunctionTool) -> None:
    status, shown = await run(context, text, tool)
    assert status is CallStatus.ERROR
    assert says in shown
    assert await run(context, "1 + 1") == (CallStatus.OK, "2\n")


async def test_the_time_limit_is_a_result_and_the_next_call_works(context: ToolContext) -> None:
    status, text = await run(context, "print('working')\nwhile True: pass", code_tool(timeout_s=1.0))
    assert status is CallStatus.TIMEOUT
    assert text.startswith("working\n")
    assert await run(context, "1 + 1") == (CallStatus.OK, "2\n")


async def test_text_that_is_no_text_is_refused(context: ToolContext) -> None:
    for text in ("'\ud800'", "1\0"):
        assert (await run(context, text))[0] is CallStatus.INVALID_ARGUMENTS


async def test_the_deadline_of_the_harness_passes_through(context: ToolContext) -> None:
    """Law 12: the deadline that fired is the harness's, so it is no result."""
    await run(context, "1")
    deadline = Deadline.after(0.05, "episode")  # sooner than the least that the tool itself allows
    calls = calls_of(("code", {"code": "while True: pass"}))
    with pytest.raises(DeadlineReached) as caught:
        await Toolbox([code_tool(timeout_s=60)]).run(calls, context=context, deadline=deadline, refuse_after=None)
    assert caught.value.deadline is deadline
    assert await run(context, "1 + 1") == (CallStatus.OK, "2\n")


async def test_calls_of_one_turn_run_at_once_and_keep_their_order(context: ToolContext) -> None:
    assert code.parallel
    calls = calls_of(*(("code", {"code": f"{n} * 10"}) for n in range(6)))
    results = await Toolbox([code]).run(calls, context=context, deadline=NO_DEADLINE, refuse_after=None)
    assert [result.text for result in results] == [f"{n * 10}\n" for n in range(6)]


async def test_a_worker_that_is_killed_is_told_and_replaced(context: ToolContext) -> None:
    """The pool's own watch ends a worker that does not heed its limit."""
    pool = pydantic_monty.AsyncMonty(min_processes=1, max_processes=1, request_timeout=2.0)
    context.state["code"] = await context.resources.enter_async_context(pool)
    status, text = await run(context, "while True: pass")
    assert status is CallStatus.TIMEOUT
    assert "The interpreter ended" in text
    assert await run(context, "1 + 1") == (CallStatus.OK, "2\n")


def workers() -> set[int]:
    """Processes of ours that are alive and run the interpreter."""
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, rest = stat.read_text().rsplit(")", 1)
            state, parent = rest.split()[:2]
            if name.endswith("(monty") and int(parent) == os.getpid() and state != "Z":
                found.add(int(stat.parent.name))
    return found


async def test_the_end_of_an_episode_ends_its_workers() -> None:
    made = make_context()
    before = workers()
    async with made.resources:
        await run(made, "1")
        assert workers() > before
    assert workers() == before


async def test_without_the_extra_it_is_unavailable_and_says_what_to_do(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentenv_tools.code._MODULE", "no_such_interpreter")
    result = await call_one(code, context, code="1")
    assert result.status is CallStatus.UNAVAILABLE
    assert "pip install 'pydantic-monty>=1.4,<1.5'" in result.text


async def test_without_the_workers_program_it_is_unavailable_too(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(**_: Any) -> None:
        raise FileNotFoundError("could not locate the `monty` binary")

    monkeypatch.setattr(pydantic_monty, "AsyncMonty", missing)
    assert (await call_one(code, context, code="1")).status is CallStatus.UNAVAILABLE


def test_what_a_tool_was_made_with_is_in_its_hash() -> None:
    made = [
        code,
        code_tool(seed=1),
        code_tool(timeout_s=1),
        code_tool(memory_bytes=1 << 20),
        code_tool(now=datetime(2030, 1, 1, tzinfo=UTC)),
    ]
    assert len({tool.sha256 for tool in made}) == len(made)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"timeout_s": 0}, "timeout_s above 0"),
        ({"memory_bytes": 1}, "1 MiB or more"),
        ({"now": datetime(2025, 1, 1)}, "a time with a zone"),  # noqa: DTZ001 - what is refused
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        code_tool(**options)
