"""What a sandbox should not reach: a second sandbox with a process in it, and things of the harness's own machine."""

# What runs inside is kept to the modules that start quickest.
# ruff: noqa: PTH123

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from agentenv.core.sandbox import Sandbox
from agentenv.core.sandbox_process import ProcessDied, SandboxProcess
from agentenv.sandboxes.conformance.check import Bench, patience
from agentenv.sandboxes.conformance.inside import ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """A process in another sandbox of the same provider."""

    sandbox: Sandbox
    process: SandboxProcess
    mark: str
    """A word in its command line."""
    pid: int
    """Its number, where it lives."""

    async def ask(self) -> bytes | None:
        """Have it answer; None if it is dead."""
        try:
            return await self.process.request(b"there?", patience())
        except ProcessDied:
            return None


@asynccontextmanager
async def stranger(bench: Bench) -> AsyncGenerator[Stranger]:
    """Lease a second sandbox with a process that answers its number."""
    mark = bench.mark()
    async with bench.sandbox() as sandbox:
        process = await sandbox.start(["sh", "-c", "while read x; do echo $$; done", mark], deadline=patience())
        pid = int(await process.request(b"pid?", patience()))
        yield Stranger(sandbox=sandbox, process=process, mark=mark, pid=pid)


def signal_reaches(pid: int, word: str) -> bool:
    """Say whether a process is the one with a word in its command line, and may be signalled."""
    import os

    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if word.encode() not in file.read():
                return False
        os.kill(pid, 0)
    except OSError:
        return False
    return True


async def reaches_strangers(bench: Bench, sandbox: Sandbox) -> str:
    """Try whether a signal would reach another sandbox, with the one that does nothing; say so, or nothing."""
    async with stranger(bench) as other:
        reached = await ask(sandbox, signal_reaches, pid=other.pid, word=other.mark)
    return "a signal reaches the process of another sandbox" if reached else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bystanders:
    """Things of this machine that no command of a sandbox has any business with."""

    folder: str
    """One that everybody may write, with a ``file`` that everybody may read and write."""
    port: int
    """Of a service on the loopback of this machine."""
    abstract: str
    """Name of a socket that has no path."""
    socket: str
    """Path of one that everybody may connect to, in ``folder``."""


@contextmanager
def bystanders(mark: str) -> Generator[Bystanders]:
    """Make some, for the duration of a block."""
    folder = Path(tempfile.mkdtemp(prefix="agentenv-bystander-"))
    name = f"agentenv-{mark}"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o777)
        (folder / "file").write_text("of this machine")
        (folder / "file").chmod(0o666)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        path = str(folder / "socket")
        for address in (f"\0{name}", path):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen()
        Path(path).chmod(0o666)
        yield Bystanders(folder=str(folder), port=tcp.getsockname()[1], abstract=name, socket=path)


@asynccontextmanager
async def sleeper(mark: str) -> AsyncGenerator[int]:
    """Start a process of this machine that sleeps, with a word in its command line; give its number."""
    process = await asyncio.create_subprocess_exec("sleep", mark, env={"PATH": os.defpath})
    try:
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
