from __future__ import annotations

import json

import pytest
from agentenv.core.deadline import Deadline
from agentenv.core.tool import ToolContext
from agentenv.errors import SandboxFault, ToolFault
from agentenv.records.axes import CallStatus

from agentenv_tools.shell import shell
from tests.toolkit.kit import InMemoryBlobs, call_one, make_context


async def test_output_stderr_and_exit_code_are_shown(context: ToolContext) -> None:
    result = await call_one(shell, context, command="echo out; printf err >&2; exit 3")
    assert result.text == "out\n[stderr]\nerr\n[exit code 3]"
    assert (result.status, result.exit_code) == (CallStatus.OK, 3)
    assert (await call_one(shell, context, command="true")).text == "[no output]\n[exit code 0]"


async def test_workspace_persists_and_processes_do_not(context: ToolContext) -> None:
    started = await call_one(shell, context, command="echo 1 > a; sleep 100 & echo started")
    assert started.text == "started\n[killed 1 process left running]\n[exit code 0]"
    result = await call_one(shell, context, command="cat a; ps -e | grep -c sleep")
    assert result.text == "1\n0\n[exit code 1]"


async def test_time_limit_is_a_result_with_the_output_so_far(context: ToolContext) -> None:
    result = await call_one(shell, context, command="echo before; sleep 100", timeout_s=1)
    assert result.status is CallStatus.TIMEOUT
    assert result.text.startswith("before\n[stopped after 1 s] [exit code ")


async def test_limit_is_shortened_to_what_the_harness_waits(context: ToolContext) -> None:
    """Law 12: a command is stopped in time for its output to be shown."""
    result = await shell.call({"command": "echo before; sleep 100"}, context, Deadline.after(3.9, "episode"))
    assert result.status is CallStatus.TIMEOUT
    assert result.text.startswith("before\n[stopped after 0.")


@pytest.mark.parametrize("timeout_s", [0, -1, 301, "soon"])
async def test_time_limit_is_bounded(timeout_s: object) -> None:
    result = await call_one(shell, command="true", timeout_s=timeout_s)
    assert result.status is CallStatus.INVALID_ARGUMENTS
    assert "greater than 0 and at most 300" in result.text


@pytest.mark.parametrize(("command", "says"), [("a\0b", "NUL"), ("\ud800", "surrogate")])
async def test_commands_that_cannot_be_passed_on_are_refused(context: ToolContext, command: str, says: str) -> None:
    result = await call_one(shell, context, command=command)
    assert result.status is CallStatus.INVALID_ARGUMENTS
    assert says in result.text


async def test_hostile_output_is_representable(context: ToolContext) -> None:
    result = await call_one(shell, context, command=r"printf 'a\000\377\033[0m\355\240\200'")
    assert result.text == "a\\x00\\xff\\x1b[0m\\xed\\xa0\\x80\n[exit code 0]"


async def test_flood_is_cut_counted_and_kept(context: ToolContext) -> None:
    """A line of 3 MB on one stream: head and tail are shown, the exit code survives, the whole is kept."""
    result = await call_one(shell, context, command="head -c 3000000 /dev/zero | tr '\\0' x; exit 4")
    blobs = context.blobs
    assert isinstance(blobs, InMemoryBlobs)
    assert len(result.text.encode()) <= 4_000
    assert result.text.startswith("xxx")
    assert result.text.endswith("xxx\n[exit code 4]")
    assert result.full_output is not None
    assert blobs.contents[result.full_output.sha256] == b"x" * 3_000_000
    assert result.bytes_dropped >= 3_000_000 - 4_000


async def test_both_streams_are_kept_under_an_index(context: ToolContext) -> None:
    result = await call_one(shell, context, command="head -c 20000 /dev/zero | tr '\\0' x; echo oops >&2")
    blobs = context.blobs
    assert isinstance(blobs, InMemoryBlobs)
    assert "[stderr]\noops\n[exit code 0]" in result.text
    assert result.full_output is not None
    index = json.loads(blobs.contents[result.full_output.sha256])
    assert blobs.contents[index["stdout"]["sha256"]] == b"x" * 20_000
    assert blobs.contents[index["stderr"]["sha256"]] == b"oops\n"


async def test_without_sandbox_it_is_a_fault() -> None:
    with pytest.raises(ToolFault, match="'shell' needs a sandbox"):
        await call_one(shell, make_context(), command="true")


async def test_lost_sandbox_is_not_the_commands_output(context: ToolContext) -> None:
    assert context.sandbox is not None
    await context.sandbox.aclose()
    with pytest.raises(SandboxFault):
        await call_one(shell, context, command="true")
