"""Calls that the contract suite of sandboxes makes, with nothing special about them."""

from __future__ import annotations

from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import (
    Execution,
    Sandbox,
)

PATIENCE_S = 60.0
"""Of every call of the suite; generous, since it is never what a test is about."""
_TIMEOUTS_S = (0.3, 1.0, 3.0, 10.0, 30.0)


def patience() -> Deadline:
    """Make the deadline of one call."""
    return Deadline.after(PATIENCE_S, "the test's patience")


async def run(sandbox: Sandbox, *argv: str, stdin: bytes = b"") -> Execution:
    """Run a program with nothing special about it."""
    return await sandbox.run(argv, deadline=patience(), timeout_s=PATIENCE_S, stdin=stdin)


async def shell(sandbox: Sandbox, line: str, *, timeout_s: float = PATIENCE_S) -> Execution:
    """Run a line for the shell."""
    return await sandbox.run(line, deadline=patience(), timeout_s=timeout_s)


async def stopped(sandbox: Sandbox, line: str) -> Execution:
    """Run a line that only its timeout ends; on a busy machine again, with a longer one, until it wrote to stdout."""
    done = await shell(sandbox, line, timeout_s=_TIMEOUTS_S[0])
    for timeout_s in _TIMEOUTS_S[1:]:
        if not done.stdout.total_bytes:
            done = await shell(sandbox, line, timeout_s=timeout_s)
    return done


async def python(sandbox: Sandbox, source: str, *, timeout_s: float = PATIENCE_S) -> Execution:
    """Run a Python program, from a file of the workspace."""
    await sandbox.write(".program.py", source.encode())
    return await sandbox.run(["python3", "-I", "-S", ".program.py"], deadline=patience(), timeout_s=timeout_s)


def said(done: Execution) -> str:
    """Give what a command wrote, stdout first."""
    return (done.stdout.head + done.stderr.head).decode(errors="replace")


async def alive(sandbox: Sandbox) -> list[str]:
    """List the processes in a sandbox: ``PID (name) state`` of all but its PID 1 and the shell that looks."""
    done = await shell(
        sandbox,
        "for p in /proc/[0-9]*; do case ${p#/proc/} in 1|$$) ;; *)"
        " read -r pid name state rest <$p/stat && echo $pid $name $state ;; esac; done 2>/dev/null; true",
    )
    return done.stdout.head.decode().splitlines()
