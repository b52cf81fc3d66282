"""Checks of how commands end: in time, with all that they started, and without their sandbox."""

# What runs inside is kept to the modules that start quickest.
# ruff: noqa: PTH109, PTH123, PTH208

from __future__ import annotations

from agentenv.core.sandbox import Execution, Sandbox
from agentenv.sandboxes.conformance.check import GRACE_S, LIMITS, Bench, Finding, found
from agentenv.sandboxes.conformance.inside import ask, goes_on, left_of, said, shell
from agentenv.sandboxes.conformance.strangers import reaches_strangers

_TIMEOUTS_S = (0.3, 3.0, 20.0)
"""A machine that is busy may let a command get nowhere within the first."""


async def _stopped(sandbox: Sandbox, line: str, mark: str) -> tuple[Execution, list[str]]:
    """Run a line that says something and ends by its timeout only; say what is wrong with its end."""
    timeout_s, *longer = _TIMEOUTS_S
    while not said(done := await shell(sandbox, line, timeout_s=timeout_s)) and longer:
        timeout_s = longer.pop(0)
    breaches = [*await left_of(sandbox, mark), *await goes_on(sandbox)]
    if not done.timed_out:
        breaches.append(f"it ended with {done.exit_code} and not at its timeout")
    if done.duration_s > timeout_s + GRACE_S:
        breaches.append(f"its end took {done.duration_s:.1f} s")
    return done, breaches


async def ignore_sigterm(bench: Bench) -> Finding:
    """A command deaf to SIGTERM ends soon after its timeout; what it wrote is kept."""
    mark = bench.mark()
    async with bench.sandbox() as sandbox:
        line = f"trap '' TERM; echo kept; for i in 1 2 3; do sleep {mark}; done"
        done, breaches = await _stopped(sandbox, line, mark)
    if said(done) != "kept":
        breaches.append(f"of its output there is {said(done)!r}")
    return found(breaches, f"it ended after {done.duration_s:.1f} s, its output was kept")


async def daemon_grandchild_timeout(bench: Bench) -> Finding:
    """A daemon in a session of its own ends with the command that ran into its timeout."""
    mark = bench.mark()
    async with bench.sandbox() as sandbox:
        done, breaches = await _stopped(sandbox, f"(setsid sleep {mark} &); echo x; sleep {mark}", mark)
    return found(breaches, f"both ended after {done.duration_s:.1f} s")


async def daemon_grandchild_normal_exit(bench: Bench) -> Finding:
    """A daemon that holds stdout delays no command's end, and does not outlive it."""
    mark = bench.mark()
    async with bench.sandbox() as sandbox:
        done = await shell(sandbox, f"(setsid sleep {mark} &); echo x")
        breaches = [*await left_of(sandbox, mark), *await goes_on(sandbox)]
    if done.duration_s > GRACE_S:
        breaches.append(f"the command's end took {done.duration_s:.1f} s")
    return found(breaches, f"the command ended after {done.duration_s:.1f} s, and {done.killed} left processes with it")


async def stop_and_continue(bench: Bench) -> Finding:
    """A command that stops itself and its children ends at its timeout; one that was continued goes on."""
    mark = bench.mark()
    async with bench.sandbox() as sandbox:
        done, breaches = await _stopped(sandbox, f"sleep {mark} & kill -STOP $!; echo x; kill -STOP $$", mark)
        again = await shell(sandbox, "(sleep 0.05; echo went on) & kill -STOP $!; kill -CONT $!; wait")
    if said(again) != "went on":
        breaches.append(f"a continued child said {said(again)!r}")
    return found(breaches, f"stopped processes ended after {done.duration_s:.1f} s, a continued one went on")


async def kill_all(bench: Bench) -> Finding:
    """Every process killed from inside, the harness gets a result, and the next command runs."""
    async with bench.sandbox() as sandbox:
        if reached := await reaches_strangers(bench, sandbox):
            return Finding(holds=False, evidence=f"{reached}, so killing everybody was not tried")
        done = await shell(sandbox, "kill -KILL -1; echo alone", timeout_s=10)
        breaches = await goes_on(sandbox)
    return found(breaches, f"the command ended with {done.exit_code}, the next one ran")


async def kill_supervisor(bench: Bench) -> Finding:
    """Signals of every kind to whoever watches over the commands change nothing."""
    async with bench.sandbox() as sandbox:
        signals = "; ".join(f"kill -{name} $PPID" for name in ("KILL", "INT", "TERM", "STOP", "QUIT", "SEGV"))
        await shell(sandbox, f"{signals}; echo tried", timeout_s=10)
        breaches = await goes_on(sandbox)
    return found(breaches, "KILL, INT, TERM, STOP, QUIT and SEGV to it, and the next command ran")


def make_orphans(number: int, name: str) -> list[str]:
    """Make orphans that end, one after another; give those that are left when they have had time to go."""
    import ctypes
    import os
    import time

    for _ in range(number):
        child = os.fork()
        if child == 0:
            try:
                if os.fork() == 0:
                    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    left: list[str] = []
    for _ in range(200):
        left = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as file:
                    stat = file.read()
            except OSError:
                continue
            if f"({name})" in stat:
                left.append(pid)
        if not left:
            break
        time.sleep(0.05)
    return left


async def zombies(bench: Bench) -> Finding:
    """Two hundred orphans are reaped, and so fill no limit of processes."""
    async with bench.sandbox() as sandbox:
        name = f"orphan{bench.mark()[-8:]}"
        left = await ask(sandbox, make_orphans, number=200, name=name)
        breaches = await goes_on(sandbox)
    if left:
        breaches.append(f"{len(left)} of 200 are still there")
    return found(breaches, f"200 of them came and went under a limit of {LIMITS.processes} processes")


async def exec_after_timeout(bench: Bench) -> Finding:
    """After commands that hung, died and were killed, the workspace is as they left it."""
    mark = bench.mark()
    async with bench.sandbox() as sandbox:
        hangs = f"echo one > f; mkdir -p d; trap '' TERM; echo x; sleep {mark}; echo late > f"
        _, breaches = await _stopped(sandbox, hangs, mark)
        await shell(sandbox, "echo two >> f; kill -KILL $$")
        await shell(sandbox, "cd d && echo three > g; exit 7")
        state = said(await shell(sandbox, "cat f d/g"))
        breaches += await goes_on(sandbox)
        if await sandbox.read("d/g") != b"three\n":
            breaches.append("the harness reads another file than the commands")
    if state != "one\ntwo\nthree":
        breaches.append(f"the files say {state!r}")
    return found(breaches, "three commands ended badly, their files are there")


def circumstances() -> dict[str, object]:
    """Say what a command finds around it, but for what is in the workspace."""
    import os
    import resource

    umask = os.umask(0o22)
    return {
        "folder": os.getcwd(),
        "umask": umask,
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "environment": sorted(os.environ),
        "niceness": os.nice(0),
    }


async def state_between_commands(bench: Bench) -> Finding:
    """Environment, folder, umask and limits of one command are not those of the next."""
    async with bench.sandbox() as sandbox:
        before = await ask(sandbox, circumstances)
        await shell(sandbox, "export LEFT=1; cd /tmp; umask 077; ulimit -n 50; renice -n 5 $$ >/dev/null; true")
        after = await ask(sandbox, circumstances)
    breaches = [f"{what} was {before[what]}, then {after[what]}" for what in before if before[what] != after[what]]
    return found(breaches, f"the same {', '.join(before)} for each")
