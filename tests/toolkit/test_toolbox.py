"""The calls of one turn.

Promises: one result per call, in the order of the calls, whatever ran at once; the policy's mistakes are results; a
tool that could not be run raises, and its siblings are cancelled; nothing is shown over the cap.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.tool import InvalidArguments, Result, ToolContext
from agentenv.errors import HarnessFault, SandboxFault, ToolFault, UsageError
from agentenv.records.axes import CallStatus
from agentenv.records.messages import TaskEnd, ToolCall, ToolResult, ToolSpec
from agentenv.toolkit import Toolbox, tool
from hypothesis import given
from hypothesis import strategies as st

from tests.toolkit.kit import NO_DEADLINE, InMemoryBlobs, call_one, calls_of, make_context


@tool
def echo(text: str) -> str:
    """Say it."""
    return text


@tool(ends=TaskEnd.COMPLETED)
def end(value: int = 0) -> int:
    """End."""
    return value


@tool(parallel=True)
async def nap(order: int, context: ToolContext) -> int:
    """Meet the others, then leave in reverse order."""
    meeting: Meeting = context.state["meeting"]
    return await meeting.attend(order)


class Meeting:
    """Lets nobody leave before all have come, and then the last by order first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.here = 0
        self.complete = anyio.Event()
        self.gone = [anyio.Event() for _ in range(size + 1)]
        self.gone[size].set()

    async def attend(self, order: int) -> int:
        self.here += 1
        if self.here == self.size:
            self.complete.set()
        await self.complete.wait()
        await self.gone[order + 1].wait()
        self.gone[order].set()
        return order


async def run(
    tools: list[Any], *calls: tuple[str, dict[str, Any]], context: ToolContext | None = None, **options: Any
) -> tuple[ToolResult, ...]:
    options = {"deadline": NO_DEADLINE, "refuse_after": None, **options}
    return await Toolbox(tools).run(calls_of(*calls), context=context or make_context(), **options)


async def test_results_answer_their_calls() -> None:
    results = await run([echo], ("echo", {"text": "a"}), ("echo", {"text": "b"}))
    assert [(result.call_id, result.name, result.text, result.status) for result in results] == [
        ("c0", "echo", "a", CallStatus.OK),
        ("c1", "echo", "b", CallStatus.OK),
    ]
    assert all(result.duration_s >= 0 for result in results)


async def test_no_calls_no_results() -> None:
    assert await run([echo]) == ()


async def test_parallel_calls_run_at_once_and_keep_their_order() -> None:
    context = make_context()
    context.state["meeting"] = Meeting(3)
    results = await run([nap], *[("nap", {"order": n}) for n in range(3)], context=context)
    assert [result.text for result in results] == ["0", "1", "2"]


@given(pattern=st.lists(st.booleans(), max_size=8), refuse_after=st.none() | st.integers(-1, 9))
async def test_order_holds_for_any_mix(pattern: list[bool], refuse_after: int | None) -> None:
    """Law: the i-th result answers the i-th call; only the first ``refuse_after`` are run; neighbours alone overlap."""
    log: list[str] = []

    async def note(name: str) -> str:
        log.append(f"+{name}")
        await anyio.lowlevel.checkpoint()
        log.append(f"-{name}")
        return name

    @tool(parallel=True)
    async def together(name: str) -> str:
        """Run."""
        return await note(name)

    @tool
    async def alone(name: str) -> str:
        """Run."""
        return await note(name)

    calls = [("together" if flag else "alone", {"name": str(n)}) for n, flag in enumerate(pattern)]
    results = await run([together, alone], *calls, refuse_after=refuse_after)
    allowed = len(calls) if refuse_after is None else max(0, min(refuse_after, len(calls)))
    assert [result.call_id for result in results] == [f"c{n}" for n in range(len(calls))]
    assert [result.text for result in results[:allowed]] == [str(n) for n in range(allowed)]
    assert all(result.status is CallStatus.REFUSED for result in results[allowed:])
    for n in range(allowed):
        if not pattern[n]:
            at = log.index(f"+{n}")
            assert log[at + 1] == f"-{n}"
            assert all(log.index(f"-{m}") < at for m in range(n))
            assert all(log.index(f"+{m}") > at for m in range(n + 1, allowed))


async def test_unknown_tool_says_what_is_near_and_what_there_is() -> None:
    result = (await run([echo, end], ("ecko", {})))[0]
    assert result.status is CallStatus.UNKNOWN_TOOL
    assert result.text == 'There is no tool "ecko". Did you mean "echo"? Available tools: echo, end.'
    assert (await run([], ("x", {})))[0].text == 'There is no tool "x". Available tools: none.'


@pytest.mark.parametrize("name", ["ECHO", "echo-", "Echo"])
async def test_other_spellings_are_near(name: str) -> None:
    assert 'Did you mean "echo"?' in (await run([echo], (name, {})))[0].text


async def test_hostile_tool_name_is_shown_short_and_safe() -> None:
    result = (await run([echo], ("\ud800\x00" * 5_000, {})))[0]
    assert len(result.text) < 1_000
    result.text.encode()
    result.name.encode()


async def test_invalid_arguments_raised_by_a_tool_are_a_result() -> None:
    @tool
    def picky(n: int) -> str:
        """Pick."""
        raise InvalidArguments(f"{n} is taken")

    result = await call_one(picky, n=1)
    assert (result.status, result.text) == (CallStatus.INVALID_ARGUMENTS, "1 is taken")


async def test_calls_after_the_end_are_not_run() -> None:
    results = await run([echo, end], ("echo", {"text": "a"}), ("end", {"value": 7}), ("echo", {"text": "b"}))
    assert [result.status for result in results] == [CallStatus.OK, CallStatus.OK, CallStatus.CANCELLED]
    assert (results[1].ends, results[1].value) == (TaskEnd.COMPLETED, 7)
    assert "ended the task" in results[2].text


async def test_refused_calls_are_not_run() -> None:
    ran: list[int] = []

    @tool
    def mark(n: int) -> str:
        """Mark."""
        ran.append(n)
        return ""

    results = await run([mark], *[("mark", {"n": n}) for n in range(3)], refuse_after=1)
    assert ran == [0]
    assert [result.status for result in results] == [CallStatus.OK, CallStatus.REFUSED, CallStatus.REFUSED]
    assert "budget" in results[1].text


@pytest.mark.parametrize("fault", [ToolFault("t"), SandboxFault("s"), HarnessFault("h"), DeadlineReached("d")])
async def test_faults_pass_through_unchanged(fault: Exception) -> None:
    @tool
    def broken() -> str:
        """Break."""
        raise fault

    with pytest.raises(type(fault)) as caught:
        await call_one(broken)
    assert caught.value is fault


@pytest.mark.parametrize(
    "error", [ValueError("\ud800" * 1_000), TimeoutError(), KeyError("x"), RecursionError(), UsageError("u")]
)
async def test_any_other_exception_is_a_fault_that_names_the_tool(error: Exception) -> None:
    @tool
    def broken() -> str:
        """Break."""
        raise error

    with pytest.raises(ToolFault, match=r"^tool 'broken' raised") as caught:
        await call_one(broken)
    assert caught.value.__cause__ is error
    assert len(str(caught.value).encode()) < 2_000


async def test_fault_of_one_parallel_call_cancels_the_others_and_is_raised_bare() -> None:
    cancelled: list[int] = []

    @tool(parallel=True)
    async def work(n: int) -> str:
        """Work."""
        if n == 1:
            raise SandboxFault("lost")
        try:
            await anyio.sleep_forever()
        except BaseException:
            cancelled.append(n)
            raise
        return ""

    with pytest.raises(SandboxFault, match="lost"):
        await run([work], *[("work", {"n": n}) for n in range(3)])
    assert sorted(cancelled) == [0, 2]


async def test_deadline_ends_tools_that_hang() -> None:
    @tool(parallel=True)
    async def hang() -> str:
        """Hang."""
        await anyio.sleep_forever()
        return ""

    for count in (1, 3):
        deadline = Deadline.after(0.01, "episode")
        with pytest.raises(DeadlineReached) as caught:
            await run([hang], *[("hang", {})] * count, deadline=deadline)
        assert caught.value.deadline is deadline


async def test_cancellation_passes_through() -> None:
    started = anyio.Event()

    @tool(parallel=True)
    async def hang() -> str:
        """Hang."""
        started.set()
        await anyio.sleep_forever()
        return ""

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: run([hang], ("hang", {}), ("hang", {})))
            await started.wait()
            scope.cancel()
    assert scope.cancelled_caught


async def test_output_over_the_cap_is_cut_and_kept() -> None:
    blobs = InMemoryBlobs()
    result = await call_one(echo, make_context(cap=500, blobs=blobs), text="é" * 10_000)
    assert len(result.text.encode()) <= 500
    assert result.full_output is not None
    assert blobs.contents[result.full_output.sha256] == ("é" * 10_000).encode()
    assert f"{result.bytes_dropped:,} bytes left out here" in result.text
    assert blobs.unfinished == 0


async def test_what_the_tool_left_out_itself_is_added_up() -> None:
    kept = InMemoryBlobs().put(b"x" * 10_000)

    @tool
    def partial() -> Result:
        """Give a part."""
        return Result(text="x" * 4_000, bytes_dropped=6_000, full_output=kept, exit_code=3)

    blobs = InMemoryBlobs()
    result = await call_one(partial, make_context(cap=500, blobs=blobs))
    assert result.full_output == kept
    assert result.exit_code == 3
    assert blobs.contents == {}
    shown = len(result.text) - len(result.text.split("x\n")[1].split("\nx")[0]) - 2
    assert result.bytes_dropped == 10_000 - shown
    uncut = await call_one(partial, make_context(cap=5_000))
    assert (uncut.full_output, uncut.bytes_dropped) == (kept, 6_000)


async def test_hostile_text_of_a_tool_is_representable() -> None:
    result = await call_one(echo, text="a\x00\ud800\x1b")
    assert result.text == "a\\x00\\ud800\\x1b"


async def test_full_disk_is_a_fault_of_the_harness() -> None:
    with pytest.raises(HarnessFault, match="no space left"):
        await call_one(echo, make_context(blobs=InMemoryBlobs(fail=True)), text="x" * 5_000)


async def test_value_without_json_form_is_the_tools_fault() -> None:
    @tool
    def odd() -> Result:
        """Give."""
        return Result(text="", value=object())

    with pytest.raises(ToolFault, match="'odd'"):
        await call_one(odd)


def test_names_must_differ() -> None:
    with pytest.raises(UsageError, match="echo"):
        Toolbox([echo, end, echo])


def test_toolbox_knows_its_tools() -> None:
    box = Toolbox([echo, end])
    assert [spec.name for spec in box.specs] == ["echo", "end"]
    assert box.sha256s == {"echo": echo.sha256, "end": end.sha256}
    assert not box.needs_sandbox
    assert Toolbox([tool(needs_sandbox=True)(echo.function)]).needs_sandbox


class Foreign:
    """A tool that is no function of ours: its arguments are checked against its schema."""

    spec = ToolSpec(
        name="foreign",
        description="Count.",
        parameters={
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 1}},
            "required": ["n"],
            "additionalProperties": False,
        },
    )
    needs_sandbox = False
    parallel = False
    sha256 = "00"

    async def call(self, arguments: dict[str, Any], context: ToolContext, deadline: Deadline) -> Result:
        return Result(text=str(arguments["n"] + 1))


async def test_arguments_of_any_tool_are_checked() -> None:
    assert (await call_one(Foreign(), n=1)).text == "2"
    result = await call_one(Foreign(), n=0, m=1)
    assert result.status is CallStatus.INVALID_ARGUMENTS
    assert result.text.splitlines() == [
        'Invalid arguments for "foreign":',
        '- argument "n": expected an integer at least 1, got the number 0',
        '- there is no argument "m". Arguments: n',
        'Example of a valid call: {"name": "foreign", "arguments": {"n": 1}}',
    ]
    assert 'argument "n" is missing' in (await call_one(Foreign())).text


async def test_any_tool_that_hangs_meets_the_deadline() -> None:
    class Hanging(Foreign):
        async def call(self, arguments: dict[str, Any], context: ToolContext, deadline: Deadline) -> Result:
            await anyio.sleep_forever()
            return Result(text="")

    deadline = Deadline.after(0.01, "episode")
    with pytest.raises(DeadlineReached):
        await Toolbox([Hanging()]).run(
            [ToolCall(id="a", name="foreign", arguments={"n": 1})],
            context=make_context(),
            deadline=deadline,
            refuse_after=None,
        )
