"""Nothing outlives a sandbox: no process, no folder, no descriptor; however it ends, and whoever dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import agentenv
import pytest
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.core.sandbox_process import ProcessDied
from agentenv.errors import SandboxFault
from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.sandboxes.providers import PROVIDERS
from agentenv.testing.contracts.sandbox_calls import patience, python, run, shell
from tests.sandboxes.kinds import ALL

SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin"
ON_DISK = SandboxSpec(limits=SandboxLimits(workspace_bytes=None))


@pytest.fixture
def root():
    """A folder for workspaces that the sandboxes' user can reach."""
    path = Path(tempfile.mkdtemp(prefix="agentenv-test-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=ALL)
def kind(request):
    return request.param


@pytest.fixture
async def provider(kind, root):
    async with ALL[kind](workspace_root=root) as provider:
        yield provider


@pytest.fixture
def mark() -> str:
    """A word to find processes by: sleepers sleep this long."""
    return str(uuid.uuid4().int % 10**9 + 10**6)


def processes(word: str) -> list[int]:
    """Every process of this machine that has a word in its command line, and is no zombie."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until_gone(word: str, seconds: float) -> None:
    """Wait so many seconds of this process's own: who ends has as many of them on a machine that is busy."""
    end = time.process_time() + seconds
    while processes(word) and time.process_time() < end:
        os.sched_yield()
    assert processes(word) == []


def named(kind: str) -> tuple[str, str]:
    """Module and class of a provider, for a process that imports it by name."""
    return ALL[kind].__module__, ALL[kind].__name__


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_closing_leaves_nothing(provider, root, mark):
    """Commands, daemons, kept processes, folders: all gone when aclose returns."""
    sandbox = await provider.lease(SandboxSpec(files={"f": b"x"}), patience())
    await sandbox.start(["sh", "-c", f"(setsid sleep {mark} &); exec sleep {mark}"], deadline=patience())
    running = asyncio.ensure_future(shell(sandbox, f"touch up; sleep {mark}"))
    while "up" not in {each.name for each in await sandbox.list()}:
        await asyncio.sleep(0)
    assert processes(mark)
    await sandbox.aclose()
    assert processes(mark) == []
    assert processes(str(root)) == []
    assert list(root.iterdir()) == []
    with pytest.raises(SandboxFault):
        await running


async def test_closing_removes_any_tree(provider, root):
    """Deep, and closed to its owner."""
    sandbox = await provider.lease(ON_DISK, patience())
    done = await python(
        sandbox,
        """
import os
os.makedirs("closed/inner"); os.chmod("closed/inner", 0); os.chmod("closed", 0)
for _ in range(100):
    os.mkdir("deeper"); os.chdir("deeper")
os.chmod(".", 0)
""",
    )
    assert done.exit_code == 0
    await sandbox.aclose()
    assert list(root.iterdir()) == []


async def test_leases_leak_no_descriptors(provider):
    async with await provider.lease(SandboxSpec(), patience()):
        pass
    before = descriptors()
    for _ in range(3):
        async with await provider.lease(SandboxSpec(), patience()) as sandbox:
            await run(sandbox, "true")
            await sandbox.start(["cat"], deadline=patience())
    assert descriptors() <= before


async def test_many_sandboxes_at_once(provider, root):
    async def use(number: int) -> bytes:
        async with await provider.lease(SandboxSpec(), patience()) as sandbox:
            return (await run(sandbox, "echo", str(number))).stdout.head

    assert await asyncio.gather(*map(use, range(10))) == [b"%d\n" % number for number in range(10)]
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("milliseconds", [0.5, 3, 10, 20, 40])
async def test_start_cut_short_leaves_nothing(provider, root, milliseconds):
    """Whatever the moment: either there is a sandbox, or nothing of one."""
    deadline = Deadline.after(milliseconds / 1000, "a start")
    with contextlib.suppress(DeadlineReached):
        sandbox = await provider.lease(SandboxSpec(files={"f": b"x"}), deadline)
        await sandbox.aclose()
    assert list(root.iterdir()) == []
    assert processes(str(root)) == []


async def test_cancelled_command_is_killed(provider, mark):
    """Its sandbox stays in use."""
    async with await provider.lease(SandboxSpec(), patience()) as sandbox:
        running = asyncio.ensure_future(shell(sandbox, f"(setsid sleep {mark} &); touch up; sleep {mark}"))
        while "up" not in {each.name for each in await sandbox.list()}:
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await run(sandbox, "true")
        assert processes(mark) == []


async def test_cancelled_closing_closes_all_the_same(provider, root, mark):
    """Cancelled twice while it closes, the task ends cancelled, and nothing is left."""
    sandbox = await provider.lease(SandboxSpec(), patience())
    await sandbox.start(["sleep", mark], deadline=patience())
    closing = asyncio.ensure_future(sandbox.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert processes(mark) == []
    assert list(root.iterdir()) == []


async def test_sandbox_killed_from_outside_is_a_fault(provider, root, mark):
    """Whoever waits is told at once, and so is whoever asks later; closing still works."""
    sandbox = await provider.lease(SandboxSpec(), patience())
    kept = await sandbox.start(["cat"], deadline=patience())
    running = asyncio.ensure_future(shell(sandbox, f"touch up; sleep {mark}"))
    while "up" not in {each.name for each in await sandbox.list()}:
        await asyncio.sleep(0)
    below = {pid: children(pid) for pid in processes(str(root))}
    for launcher in below.keys() - {child for all_of_one in below.values() for child in all_of_one}:
        for first in below[launcher]:
            os.kill(first, signal.SIGKILL)
    with pytest.raises(SandboxFault, match="ended unexpectedly"):
        await running
    with pytest.raises((SandboxFault, ProcessDied)):
        await kept.request(b"x", patience())
    with pytest.raises(SandboxFault):
        await run(sandbox, "true")
    await sandbox.aclose()
    assert processes(mark) == []
    assert list(root.iterdir()) == []


HARNESS = """
import asyncio, importlib, sys
from pathlib import Path
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import SandboxSpec

async def main(module, name, root, mark):
    provider = getattr(importlib.import_module(module), name)(workspace_root=Path(root))
    sandbox = await provider.lease(SandboxSpec(), Deadline.after(60, "start"))
    await sandbox.start(["sh", "-c", f"(setsid sleep {mark} &); exec sleep {mark}"], deadline=Deadline("x"))
    busy = asyncio.ensure_future(
        sandbox.run(f"touch up; trap '' TERM HUP; sleep {mark}", deadline=Deadline("x"), timeout_s=1000)
    )
    while "up" not in {each.name for each in await sandbox.list()}:
        await asyncio.sleep(0)
    print("ready", flush=True)
    await busy

asyncio.run(main(*sys.argv[1:]))
"""


async def test_harness_killed_takes_everything_along(provider, kind, root, mark):
    """SIGKILL while a command runs: nothing alive two seconds later; the folder goes at the next start.

    A sandbox of a living harness beside it keeps its own.
    """
    async with await provider.lease(SandboxSpec(files={"mine": b"x"}), patience()) as sibling:
        with subprocess.Popen(
            [sys.executable, "-c", HARNESS, *named(kind), str(root), mark], stdout=subprocess.PIPE, text=True
        ) as harness:
            assert harness.stdout is not None
            assert harness.stdout.readline() == "ready\n"
            assert processes(mark)
            harness.kill()
        wait_until_gone(mark, 2.0)
        assert len(list(root.iterdir())) == 2
        async with ALL[kind](workspace_root=root) as next_start:
            assert (await next_start.probe()).works
        assert len(list(root.iterdir())) == 1
        assert await sibling.read("mine") == b"x"


# A start that fails.


async def test_missing_bubblewrap_says_how_to_get_it(root):
    provider = BwrapProvider(workspace_root=root, search_path=str(root))
    with pytest.raises(SandboxFault, match=r"apt-get install (bubblewrap|util-linux)") as missing:
        await provider.lease(SandboxSpec(), patience())
    assert not missing.value.retryable
    status = await provider.probe()
    assert not status.works
    assert "apt-get install" in status.detail
    await provider.aclose()
    assert list(root.iterdir()) == []


def impostor(root: Path, body: str) -> BwrapProvider:
    """A provider whose bubblewrap is a script."""
    script = root / "bin" / "bwrap"
    script.parent.mkdir(mode=0o755)
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    script.parent.chmod(0o755)
    (root / "spaces").mkdir(mode=0o711)
    return BwrapProvider(workspace_root=root / "spaces", search_path=f"{script.parent}:{SYSTEM_PATH}")


async def test_refused_namespaces_say_what_to_allow(root):
    provider = impostor(root, "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    async with provider:
        with pytest.raises(SandboxFault, match=r"No permissions.*sysctl") as refused:
            await provider.lease(SandboxSpec(), patience())
        assert not refused.value.retryable
        status = await provider.probe()
        assert (status.name, status.works) == ("bwrap", False)
    assert list((root / "spaces").iterdir()) == []


async def test_start_that_hangs_ends_at_its_deadline(root):
    async with impostor(root, "exec sleep 1000") as provider:
        soon = Deadline.after(0.5, "a start")
        with pytest.raises(DeadlineReached) as reached:
            await provider.lease(SandboxSpec(), soon)
        assert reached.value.deadline is soon
    assert list((root / "spaces").iterdir()) == []
    assert processes(str(root)) == []


@pytest.mark.parametrize(
    "sent",
    [r"\0\0\0\01\0\0\0\0z", r"\377\377\377\377\377\377\377\377", "HTTP/1.1 200 OK"],
    ids=["item", "size", "text"],
)
async def test_nonsense_from_a_supervisor_is_a_fault(root, sent):
    async with impostor(root, f"printf '{sent}'; exec sleep 1000") as provider:
        with pytest.raises(SandboxFault, match="protocol"):
            await provider.lease(SandboxSpec(), patience())
    assert processes(str(root)) == []


async def test_unreachable_workspaces_say_what_to_set(tmp_path):
    """As root the sandboxes' user is another one, and has to reach the folder."""
    if os.geteuid() != 0:
        tmp_path.chmod(0)
    inner = tmp_path / "inner"
    try:
        if os.geteuid() == 0:
            inner.mkdir()
        async with BwrapProvider(workspace_root=inner) as provider:
            with pytest.raises(SandboxFault, match=r"TMPDIR|Permission denied") as refused:
                await provider.lease(ON_DISK, patience())
            assert not refused.value.retryable
    finally:
        tmp_path.chmod(0o700)


async def test_memory_too_small_for_a_sandbox(provider):
    with pytest.raises(SandboxFault, match="memory_bytes"):
        await provider.lease(SandboxSpec(limits=SandboxLimits(memory_bytes=1 << 20)), patience())


def test_table_of_providers():
    """Making one starts nothing."""
    assert [make().name for make in PROVIDERS.values()] == list(PROVIDERS)
    assert list(PROVIDERS) == ["bwrap", "namespaces", "docker", "landlock", "none"]


# Another user.


ORDINARY = """
import asyncio, importlib, os, sys
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import SandboxSpec

async def main(module, name):
    async with getattr(importlib.import_module(module), name)() as provider:
        status = await provider.probe()
        assert status.works, status.detail
        deadline = Deadline.after(60, "all")
        async with await provider.lease(SandboxSpec(files={"a/f": b"x"}), deadline) as sandbox:
            done = await sandbox.run("id -u; cat a/f; mkdir c; chmod 000 c", deadline=deadline, timeout_s=10)
            assert done.stdout.head == b"%d\\nx" % os.getuid(), done
            assert await sandbox.read("a/f") == b"x"
    print("done", os.getuid(), os.listdir(os.environ["TMPDIR"]))

asyncio.run(main(*sys.argv[1:]))
"""


def test_ordinary_user_needs_no_privileges(kind, root):
    """The package, copied to where everybody may read it, works for a user with no rights at all."""
    import anyio
    import idna

    lib, own = root / "lib", root / "own"
    for module in (agentenv, anyio, idna):
        source = Path(module.__path__[0])
        shutil.copytree(source, lib / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in Path(anyio.__path__[0]).parent.glob("typing_extensions.py"):
        shutil.copy(path, lib)
    root.chmod(0o755)
    own.mkdir()
    become, uid = [], os.geteuid()
    if uid == 0:
        uid = 65534
        become = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
        os.chown(own, uid, uid)
    done = subprocess.run(
        [*become, "/usr/bin/python3", "-c", ORDINARY, *named(kind)],
        env={"PATH": SYSTEM_PATH, "PYTHONPATH": str(lib), "TMPDIR": str(own), "LANG": "C.UTF-8"},
        cwd="/", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == f"done {uid} []\n", done.stderr
