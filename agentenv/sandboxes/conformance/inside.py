"""Python functions and shell lines, run inside a sandbox.

A function that is run inside is shipped as its source: it imports what it needs in its body, takes and gives what JSON
can carry, and runs on Python 3.9.
"""

# What runs inside is kept to the modules that start quickest.
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Callable
from typing import Any

from agentenv.core.sandbox import Execution, Sandbox
from agentenv.sandboxes.conformance.check import PATIENCE_S, patience

_PROGRAM = """from __future__ import annotations
import json, sys
{source}
answer = {name}(**json.loads(sys.stdin.readline()))
print(json.dumps(answer), flush=True)
"""


class Unanswered(Exception):
    """A program inside ended without an answer; the text says how."""

    def __init__(self, message: str, exit_code: int = 0) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def program(function: Callable[..., Any]) -> str:
    """Give the source of a program: it reads a line of JSON, calls a function with it, and prints what that gives."""
    return _PROGRAM.format(source=textwrap.dedent(inspect.getsource(function)), name=function.__name__)


def command(function: Callable[..., Any], *, mark: str = "") -> list[str]:
    """Give the command that runs a function, with a word that shows in the command line of all it forks."""
    return ["python3", "-I", "-S", "-c", program(function), *([mark] if mark else [])]


async def ask(
    sandbox: Sandbox, function: Callable[..., Any], *, mark: str = "", timeout_s: float = PATIENCE_S, **given: Any
) -> Any:
    """Call a function inside.

    Raises:
        Unanswered: It raised, was killed, or took longer than ``timeout_s``.
    """
    stdin = json.dumps(given).encode()
    done = await sandbox.run(command(function, mark=mark), deadline=patience(), timeout_s=timeout_s, stdin=stdin)
    try:
        return json.loads(done.stdout.head)
    except ValueError:
        how = "was stopped at its timeout" if done.timed_out else f"ended with {done.exit_code}"
        why = done.stderr.head.decode(errors="replace").strip().rpartition("\n")[2]
        raise Unanswered(f"the program {function.__name__} {how}{': ' if why else ''}{why}", done.exit_code) from None


async def shell(sandbox: Sandbox, line: str, *, timeout_s: float = PATIENCE_S) -> Execution:
    """Run a line for the shell."""
    return await sandbox.run(line, deadline=patience(), timeout_s=timeout_s)


def said(done: Execution) -> str:
    """Give what a command wrote to stdout."""
    return done.stdout.head.decode(errors="replace").strip()


async def goes_on(sandbox: Sandbox) -> list[str]:
    """Say what is wrong with a sandbox that should run the next command as if nothing had been."""
    done = await shell(sandbox, "echo on")
    return [] if said(done) == "on" else [f"the next command ended with {done.exit_code} and said {said(done)!r}"]


async def left_of(sandbox: Sandbox, mark: str) -> list[str]:
    """Say which processes with a word in their command line are alive inside."""
    pids = await ask(sandbox, processes_with, word=mark)
    return [f"{len(pids)} of its processes are still alive"] if pids else []


def processes_with(word: str) -> list[int]:
    """List the processes with a word in their command line, but this one."""
    import os

    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if word.encode() in file.read():
                        found.append(int(name))
            except OSError:
                continue
    return found
