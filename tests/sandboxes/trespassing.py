"""What the commands of one sandbox can do to processes of another kind of sandbox on this machine."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from agentenv.core.sandbox import Sandbox
from agentenv.testing.contracts.sandbox_calls import patience, python, said

TRESPASS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for pid in {pids}:
    if not os.path.exists(f"/proc/{{pid}}"):
        print(pid, "is not there")
    try:
        os.kill(pid, 0); print(pid, "signal")
    except PermissionError: pass
    for name in ("environ", "mem", "cwd/.", "root/."):
        try:
            os.close(os.open(f"/proc/{{pid}}/{{name}}", os.O_RDONLY)); print(pid, name)
        except PermissionError: pass
    if libc.ptrace(16, pid, 0, 0) == 0:
        print(pid, "ptrace"); libc.ptrace(17, pid, 0, 0)
"""


async def processes_of(sandbox: Sandbox) -> list[int]:
    """Start a command, and give its pid and those of all above it up to this process, as this machine counts."""
    mark = str(uuid.uuid4().int % 10**9 + 10**6)
    await sandbox.start(["sleep", mark], deadline=patience())
    while not (found := [pid for pid in _pids() if mark.encode() in _read(pid, "cmdline")]):
        pass
    return [pid for each in found for pid in _lineage(each)]


async def trespasses(sandbox: Sandbox, pids: list[int]) -> str:
    """Let a command try to signal, read and trace them; give what it could do."""
    return said(await python(sandbox, TRESPASS.format(pids=pids)))


def _lineage(pid: int) -> list[int]:
    """Give a process and those above it, without this one and the machine's first."""
    found: list[int] = []
    while pid not in {0, 1, os.getpid()}:
        found.append(pid)
        pid = int(_read(pid, "stat").rpartition(b")")[2].split()[1])
    return found


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
