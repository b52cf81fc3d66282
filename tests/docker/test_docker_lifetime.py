"""Nothing outlives a sandbox at the engine: no container, no process, no shim; however it ends, and whoever dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.core.sandbox_process import ProcessDied
from agentenv.errors import SandboxFault
from agentenv.sandboxes.docker import DockerProvider
from agentenv.sandboxes.docker_engine import Engine
from agentenv.testing.contracts.sandbox_calls import patience, run, shell

HARNESS = """
import asyncio, sys
from pathlib import Path
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import SandboxSpec
from agentenv.sandboxes.docker import DockerProvider

async def main(url, root, mark):
    provider = DockerProvider(url=url, workspace_root=Path(root))
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


@pytest.fixture
def provider(docker_provider):
    return docker_provider


@pytest.fixture
def mark() -> str:
    """A word to find processes by: sleepers sleep this long."""
    return str(uuid.uuid4().int % 10**9 + 10**6)


def processes(word: str) -> list[int]:
    """Every process of this machine that has a word in its command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def containers(engine: str) -> list[str]:
    """Every sandbox the engine knows, ended ones included."""
    asked = Engine(engine)
    try:
        return [found.name for found in asked.containers("agentenv.owner")]
    finally:
        asked.close()


def shims(engine: str) -> list[int]:
    """Processes of the private engine that hold a container."""
    folder = str(Path(engine.removeprefix("unix://")).parent)
    return [pid for pid in processes("containerd-shim") if pid in processes(folder)]


def wait_until(gone, seconds: float) -> None:
    """Wait so many seconds of this process's own: who ends has as many of them on a machine that is busy."""
    end = time.process_time() + seconds
    while gone() and time.process_time() < end:
        os.sched_yield()
    assert gone() == []


async def test_closing_leaves_nothing(provider, engine, root, mark):
    sandbox = await provider.lease(SandboxSpec(labels={"run": "r1"}), patience())
    await sandbox.start(["sh", "-c", f"(setsid sleep {mark} &); exec sleep {mark}"], deadline=patience())
    running = asyncio.ensure_future(shell(sandbox, f"touch up; sleep {mark}"))
    while "up" not in {each.name for each in await sandbox.list()}:
        await asyncio.sleep(0)
    assert processes(mark)
    assert len(containers(engine)) == 1
    await sandbox.aclose()
    assert (processes(mark), containers(engine), list(root.iterdir())) == ([], [], [])
    with pytest.raises(SandboxFault):
        await running


async def test_containers_are_labelled(provider, engine):
    """With who owns them, and what the lease said."""
    async with await provider.lease(SandboxSpec(labels={"run": "r1", "episode": "e2"}), patience()):
        asked = Engine(engine)
        (found,) = asked.containers("agentenv.label.run=r1")
        asked.close()
    assert found.labels["agentenv.label.episode"] == "e2"
    assert f".{os.getpid()}." in found.labels["agentenv.owner"]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    assert boot.startswith(found.labels["agentenv.boot"])


async def test_leases_leak_no_descriptors(provider):
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async with await provider.lease(SandboxSpec(), patience()):
        pass
    before = descriptors()
    for _ in range(3):
        async with await provider.lease(SandboxSpec(), patience()) as sandbox:
            await run(sandbox, "true")
            await sandbox.start(["cat"], deadline=patience())
    assert descriptors() <= before


async def test_many_at_once_leave_no_container_and_no_shim(provider, engine, root):
    """Started and ended side by side; of removals by force at once one used to leave its shim behind."""

    async def use(number: int) -> bytes:
        async with await provider.lease(SandboxSpec(), patience()) as sandbox:
            return (await run(sandbox, "echo", str(number))).stdout.head

    assert await asyncio.gather(*map(use, range(12))) == [b"%d\n" % number for number in range(12)]
    assert (containers(engine), list(root.iterdir())) == ([], [])
    if engine.startswith("unix:///tmp/agentenv-engine"):
        wait_until(lambda: shims(engine), 30.0)


@pytest.mark.parametrize("milliseconds", [0.5, 20, 60, 120, 180, 250, 350])
async def test_start_cut_short_leaves_nothing(provider, engine, root, milliseconds):
    """Whatever the moment, while a call of the engine is under way or between two: a sandbox, or nothing of one."""
    deadline = Deadline.after(milliseconds / 1000, "a start")
    with contextlib.suppress(DeadlineReached):
        sandbox = await provider.lease(SandboxSpec(files={"f": b"x"}), deadline)
        await sandbox.aclose()
    assert (containers(engine), list(root.iterdir())) == ([], [])


async def test_cancelled_closing_closes_all_the_same(provider, engine, root, mark):
    sandbox = await provider.lease(SandboxSpec(), patience())
    await sandbox.start(["sleep", mark], deadline=patience())
    closing = asyncio.ensure_future(sandbox.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert (processes(mark), containers(engine), list(root.iterdir())) == ([], [], [])


async def test_container_ended_by_somebody_else_is_a_fault(provider, engine, root, mark):
    """Whoever waits is told at once, and so is whoever asks later; closing still works."""
    sandbox = await provider.lease(SandboxSpec(), patience())
    kept = await sandbox.start(["cat"], deadline=patience())
    running = asyncio.ensure_future(shell(sandbox, f"touch up; sleep {mark}"))
    while "up" not in {each.name for each in await sandbox.list()}:
        await asyncio.sleep(0)
    asked = Engine(engine)
    (name,) = containers(engine)
    await asyncio.to_thread(asked.end, name)
    asked.close()
    with pytest.raises(SandboxFault, match="ended unexpectedly"):
        await running
    with pytest.raises((SandboxFault, ProcessDied)):
        await kept.request(b"x", patience())
    with pytest.raises(SandboxFault):
        await run(sandbox, "true")
    await sandbox.aclose()
    assert (processes(mark), list(root.iterdir())) == ([], [])


async def test_harness_killed_takes_its_container_along(provider, engine, root, mark):
    """SIGKILL while a command runs: no process and no container two seconds later; a living sibling keeps its own."""
    async with await provider.lease(SandboxSpec(files={"mine": b"x"}), patience()) as sibling:
        with subprocess.Popen(
            [sys.executable, "-c", HARNESS, engine, str(root), mark], stdout=subprocess.PIPE, text=True
        ) as harness:
            assert harness.stdout is not None
            assert harness.stdout.readline() == "ready\n"
            assert len(containers(engine)) == 2
            harness.kill()
        wait_until(lambda: [*processes(mark), *containers(engine)[1:]], 2.0)
        assert await sibling.read("mine") == b"x"


ABANDONING = """
import os, sys
from agentenv.sandboxes.docker_engine import Engine
from agentenv.sandboxes.docker_leftovers import owner_labels
engine = Engine(sys.argv[1])
config = {"Labels": owner_labels(), "Image": sys.argv[2], "Entrypoint": ["sleep", "1000"],
          "HostConfig": {"AutoRemove": True, "NetworkMode": "none",
                         "Mounts": [{"Type": "bind", "Source": "/usr", "Target": "/usr", "ReadOnly": True}]}}
for name in sys.argv[3:]:
    engine.create(name, config)
engine.start(sys.argv[3])
"""


async def test_next_start_ends_what_a_dead_harness_left(provider, engine, root):
    """One that was created and one that runs on, as if its supervisor hung; a living sibling's is spared."""
    async with await provider.lease(SandboxSpec(files={"mine": b"x"}), patience()) as sibling:
        image = provider.identity()["image"]
        names = [f"agentenv-test-{uuid.uuid4().hex}" for _ in range(2)]
        subprocess.run([sys.executable, "-c", ABANDONING, engine, image, *names], check=True)
        assert len(containers(engine)) == 3
        async with DockerProvider(url=engine, workspace_root=root) as next_start:
            assert (await next_start.probe()).works
        assert len(containers(engine)) == 1
        assert await sibling.read("mine") == b"x"


async def test_workspace_on_disk(provider, engine, root):
    """One without a size is a folder of this machine, removed whatever was made in it."""
    spec = SandboxSpec(files={"f": b"x"}, limits=SandboxLimits(workspace_bytes=None))
    async with await provider.lease(spec, patience()) as sandbox:
        assert len(list(root.glob("*/workspace/f"))) == 1
        done = await shell(
            sandbox, "mkdir -p closed/inner; chmod 000 closed/inner closed; cp /usr/bin/id i; chmod 6755 i"
        )
        assert done.exit_code == 0
    assert (containers(engine), list(root.iterdir())) == ([], [])
