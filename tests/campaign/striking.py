"""What befalls a sandbox from outside: its first process dies or stops, or the one that started it dies."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Annotated, Literal

from agentenv.core.deadline import Deadline
from agentenv.core.lifetime import AsyncResource
from agentenv.core.sandbox import Sandbox
from agentenv.core.tool import ToolContext
from agentenv.toolkit import sandbox_of, tool
from msgspec import Meta


@tool(needs_sandbox=True)
async def strike(
    what: Literal["kill", "freeze", "orphan"],
    after_s: Annotated[float, Meta(ge=0)],
    context: ToolContext,
    deadline: Deadline,
) -> str:
    """Strike the sandbox a moment later.

    Args:
        what: Whether its first process is killed or stopped, or its launcher is killed.
        after_s: Seconds until then.
        context: The episode's; filled in, not shown.
        deadline: When the harness stops waiting; filled in, not shown.
    """
    first = await first_process(sandbox_of(context), deadline)
    victim = parent_of(first) if what == "orphan" else first
    await context.resources.enter_async_context(_Strike(victim, what, after_s))
    return "it is coming"


class _Strike(AsyncResource):
    """One that is to come, unless it is called off before."""

    def __init__(self, victim: int, what: str, after_s: float) -> None:
        self._victim = os.pidfd_open(victim)
        self._signal = signal.SIGSTOP if what == "freeze" else signal.SIGKILL
        self._task = asyncio.ensure_future(self._fall(after_s))

    async def _fall(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        signal.pidfd_send_signal(self._victim, self._signal)

    async def aclose(self) -> None:
        if self._victim >= 0:
            self._task.cancel()
            await asyncio.wait([self._task])
            os.close(self._victim)
            self._victim = -1


async def first_process(sandbox: Sandbox, deadline: Deadline) -> int:
    """Find a sandbox's first process, by its number on this machine, whatever kind of sandbox it is.

    A process inside is told by what it was started with; above it, the first of its pid namespace is the one.
    """
    mark = f"agentenv-strike-{id(sandbox):x}-{os.getpid()}"
    program = ["/bin/sh", "-c", f": {mark}; read line; echo ready; read line"]
    async with await sandbox.start(program, deadline=deadline) as process:
        await process.request(b"are you?", deadline)  # until it answers, its command line may not be there
        pid = _find(mark.encode())
        while numbers_of(pid)[-1] != 1:
            pid = parent_of(pid)
        return pid


def _find(mark: bytes) -> int:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found = mark in (process / "cmdline").read_bytes() and len(numbers_of(int(process.name))) > 1
        except OSError:
            continue  # it ended
        if found:
            return int(process.name)
    raise AssertionError(f"no process of a sandbox has {mark!r} in its command line")


def numbers_of(pid: int) -> list[int]:
    """Give the numbers a process has, from this pid namespace inwards."""
    return [int(number) for number in _status(pid, "NSpid").split()]


def parent_of(pid: int) -> int:
    return int(_status(pid, "PPid"))


def _status(pid: int, field: str) -> str:
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    found = re.search(rf"^{field}:\s+(.*)$", text, re.MULTILINE)
    assert found is not None, f"Linux reports {field}"
    return found.group(1)
