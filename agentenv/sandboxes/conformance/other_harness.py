"""A harness of its own for checks that would harm this one: it has a secret, is killed, or loses track of time.

Run as ``python -m agentenv.sandboxes.conformance.other_harness``: reads a JSON object from stdin (the factory of the
provider, what to do, a mark), writes what came of it to stdout as a line of JSON.
"""

# What runs inside is kept to the modules that start quickest.
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Sandbox, SandboxSpec
from agentenv.sandboxes.conformance.check import GRACE_S, LIMITS, PATIENCE_S, Bench, Finding, found, patience
from agentenv.sandboxes.conformance.factories import make_provider
from agentenv.sandboxes.conformance.inside import Unanswered, ask, processes_with, shell

_LOOKS_S = 0.02
_HOUR_S = 3600.0


@asynccontextmanager
async def _harness(bench: Bench, work: str, mark: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Start one with a secret in its environment and its arguments; it is killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, _secret_of(mark)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "AGENTENV_CONFORMANCE": _secret_of(mark), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdin is not None, "it is a pipe"
    try:
        process.stdin.write(json.dumps({"factory": bench.factory, "work": work, "mark": mark}).encode())
        process.stdin.close()
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


def _secret_of(mark: str) -> str:
    """Make what must not be seen; not the word that processes are found by."""
    return f"secret-{mark[::-1]}"


async def _answer(process: asyncio.subprocess.Process) -> Any:
    assert process.stdout is not None, "it is a pipe"
    assert process.stderr is not None, "it is a pipe"
    line = await process.stdout.readline()
    if not line:
        why = (await process.stderr.read()).decode(errors="replace").strip().rpartition("\n")[2]
        raise Unanswered(f"a second harness with a provider of its own ended before it had one: {why}")
    return json.loads(line)


async def in_another_harness(bench: Bench, work: str) -> Any:
    """Have another harness do something; give what came of it.

    Raises:
        Unanswered: It could not.
    """
    async with _harness(bench, work, bench.mark()) as process:
        return await _answer(process)


async def harness_killed(bench: Bench) -> Finding:
    """After SIGKILL of the harness while commands run, nothing of its sandbox is alive a moment later."""
    mark = bench.mark()
    async with _harness(bench, "busy", mark) as process:
        await _answer(process)
        before = await asyncio.to_thread(processes_with, mark)
        process.kill()
        await process.wait()
        began = time.monotonic()
        alive = before
        # Nobody tells when a process that is not ours is gone.
        while (alive := await asyncio.to_thread(processes_with, mark)) and time.monotonic() < began + GRACE_S:  # noqa: ASYNC110
            await asyncio.sleep(_LOOKS_S)
        took = time.monotonic() - began
    for pid in alive:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    if not before:
        return Finding(holds=False, evidence="its processes could not be seen from outside while it lived")
    breaches = [f"{len(alive)} of {len(before)} processes outlived it by {took:.0f} s"] if alive else []
    return found(breaches, f"{len(before)} processes, deaf to SIGTERM and daemons among them, gone after {took:.1f} s")


async def clock_jump(bench: Bench) -> Finding:
    """The harness's clock may jump by an hour either way: timeouts come when they should."""
    outcome = await in_another_harness(bench, "jumps")
    breaches = [
        f"with the clock {way}, a command of 0.3 s with a timeout of 20 s was stopped"
        for way, result in outcome.items()
        if result["short"]
    ]
    breaches += [
        f"with the clock {way}, a command that should be stopped after 0.3 s took {result['seconds']:.1f} s"
        for way, result in outcome.items()
        if not result["long"] or result["seconds"] > GRACE_S
    ]
    return found(breaches, "an hour forward and an hour back, while commands ran: stopped when due, and only then")


# In the other process.


def secrets_in_sight(word: str) -> list[str]:
    """Say where a word can be read: in the environment or the command line of a process in sight."""
    import os

    places: set[str] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for what in ("environ", "cmdline"):
            try:
                with open(f"/proc/{pid}/{what}", "rb") as file:
                    if word.encode() in file.read():
                        places.add(f"/proc/PID/{what}")
            except OSError:
                continue
    return sorted(places)


async def _secret(sandbox: Sandbox, mark: str) -> list[str]:
    return await ask(sandbox, secrets_in_sight, word=_secret_of(mark))


async def _busy(sandbox: Sandbox, mark: str) -> None:
    """Keep all kinds of processes until it is killed; never returns."""
    forever = Deadline("a harness that is about to be killed")
    await sandbox.start(["sh", "-c", f"(setsid sleep {mark} &); exec sleep {mark}"], deadline=patience())
    await sandbox.spawn(["sleep", mark], deadline=patience())
    line = f"touch up; trap '' TERM HUP; sleep {mark}"
    running = asyncio.ensure_future(sandbox.run(line, deadline=forever, timeout_s=PATIENCE_S))
    while "up" not in {each.name for each in await sandbox.list()}:  # noqa: ASYNC110 - it has no other way to tell
        await asyncio.sleep(_LOOKS_S)
    _tell("ready")
    await running


async def _jumps(sandbox: Sandbox, mark: str) -> dict[str, dict[str, Any]]:
    del mark
    ways = {"an hour ahead": _HOUR_S, "an hour behind": -_HOUR_S}
    return {way: await _with_jump(sandbox, jump_s) for way, jump_s in ways.items()}


async def _with_jump(sandbox: Sandbox, jump_s: float) -> dict[str, Any]:
    """Run a command to its timeout and one to its end, while this process's clock jumps."""
    clock, began = time.time, time.monotonic()
    running = asyncio.gather(shell(sandbox, "sleep 20", timeout_s=0.3), shell(sandbox, "sleep 0.3", timeout_s=20))
    await asyncio.sleep(_LOOKS_S)
    time.time = lambda: clock() + jump_s
    try:
        long, short = await running
    finally:
        time.time = clock
    return {"long": long.timed_out, "short": short.timed_out, "seconds": time.monotonic() - began}


_WORK: dict[str, Callable[[Sandbox, str], Awaitable[Any]]] = {"secret": _secret, "busy": _busy, "jumps": _jumps}


def _tell(what: Any) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


async def _main() -> None:
    asked = json.load(sys.stdin)
    async with make_provider(asked["factory"]) as provider:
        spec = SandboxSpec(limits=LIMITS)
        async with await provider.lease(spec, patience()) as sandbox:
            _tell(await _WORK[asked["work"]](sandbox, asked["mark"]))


if __name__ == "__main__":
    asyncio.run(_main())
