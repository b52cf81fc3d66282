"""Control groups: what they bound, that they go, and what is said where there are none.

Version 1 is tried on this machine's kernel where it has it. Of version 2, joining, killing and removing are tried on
the kernel wherever its hierarchy is mounted; which group is chosen, and the limits, on a model of its files.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.sandboxes.cgroups import Cgroup, Cgroups, candidates, find_cgroups
from agentenv.sandboxes.workspaces import Owner
from agentenv.testing.contracts.sandbox_calls import patience, python, run, said
from tests.sandboxes.kinds import ALL, KINDS

MIB = 1 << 20
LIMITS = SandboxLimits(total_memory_bytes=512 * MIB, memory_bytes=400 * MIB, processes=100)

MEMORY_BOMB = """
import os, time
ends = []
for _ in range(10):
    read, write = os.pipe()
    if os.fork() == 0:
        block = bytearray(120 << 20)
        for at in range(0, len(block), 4096):
            block[at] = 1
        os.write(write, b"x")
        time.sleep(1000)
    os.close(write)
    ends.append(read)
for end in ends:
    os.read(end, 1)  # full, or dead
ended = 0
while True:
    try:
        pid, _ = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        break
    if pid == 0:
        break
    ended += 1
print(10 - ended)
"""


@pytest.fixture(params=ALL)
async def provider(request):
    async with ALL[request.param]() as provider:
        yield provider


def groups_of(lease: str) -> list[Path]:
    return [path for parent in find_cgroups().parents for path in parent.glob(f"{lease}*")]


def ours() -> list[Path]:
    return groups_of(Owner.this_process().prefix)


async def test_memory_of_all_processes_is_limited(provider):
    """Ten processes of 120 MiB each never hold more than 512 MiB together; the sandbox goes on.

    Where no group can be made, the identity says that this does not hold.
    """
    weak = provider.identity()["weak"]
    if find_cgroups().missing:
        assert "the memory of all processes together is not limited" in weak
        return
    assert "memory" not in weak
    async with await provider.lease(SandboxSpec(limits=LIMITS), patience()) as sandbox:
        done = await python(sandbox, MEMORY_BOMB)
        assert 1 <= int(said(done)) <= 4
        use = await sandbox.usage()
        assert 400 * MIB < use.peak_memory_bytes <= 512 * MIB
        while use.memory_bytes >= 200 * MIB:  # who was killed leaves when the machine lets it
            use = await sandbox.usage()
        assert (await run(sandbox, "true")).exit_code == 0


async def test_processes_are_limited(provider):
    async with await provider.lease(SandboxSpec(limits=LIMITS), patience()) as sandbox:
        done = await python(
            sandbox,
            """
import os, time
made = 0
try:
    for _ in range(400):
        if os.fork() == 0:
            time.sleep(1000)
        made += 1
except OSError as error:
    print(type(error).__name__, made)
""",
        )
        name, made = said(done).split()
        assert name == "BlockingIOError"
        assert 50 <= int(made) <= LIMITS.processes + 8
        assert (await run(sandbox, "true")).exit_code == 0


async def test_group_is_gone_with_its_sandbox(provider):
    """Also where processes were left, and where it could not be started."""
    before = ours()
    sandbox = await provider.lease(SandboxSpec(), patience())
    assert len(ours()) - len(before) == len(find_cgroups().parents)
    await sandbox.start(["sh", "-c", "(setsid sleep 1000 &); exec sleep 1000"], deadline=patience())
    await sandbox.aclose()
    assert ours() == before
    late = SandboxSpec(files={"../outside": b""})
    with pytest.raises(Exception, match="outside"):
        await provider.lease(late, patience())
    assert ours() == before


async def test_no_limit_of_memory_when_none_is_asked_for(provider):
    limits = SandboxLimits(total_memory_bytes=None)
    async with await provider.lease(SandboxSpec(limits=limits), patience()) as sandbox:
        use = await sandbox.usage()
        assert (use.peak_memory_bytes is None) == bool(find_cgroups().missing)


@pytest.fixture
def machine(monkeypatch):
    """A machine of the test's own: what the test leaves to be swept is for no sweep of another process."""
    name = uuid.uuid4().hex
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    return name


def dead_owner(name: str) -> str:
    """A name as a process would have chosen that has ended: our pid with another time of start."""
    here = Owner.this_process()
    return f"agentenv-sandbox.{here.machine}.{here.boot}.{here.namespace}.{here.pid}.1.{name}"


async def test_groups_of_the_dead_are_removed(machine, provider):
    """With what is alive in them. A living owner's are spared, and what is no sandbox's."""
    cgroups = find_cgroups()
    async with await provider.lease(SandboxSpec(), patience()) as sandbox:
        mine = ours()
        left = cgroups.make(dead_owner("x"), LIMITS)
        if left is None:
            assert cgroups.sweep() == []
            return
        other = cgroups.make(f"agentenv-test-of-somebody-{machine}", LIMITS)
        # A harness that died may have been in another group than we are.
        elsewhere = other.folders[0] / dead_owner("y")
        elsewhere.mkdir()
        with subprocess.Popen(left.entering(["sleep", "1000"])) as sleeper:
            while str(sleeper.pid) not in left.joins[0].read_text().split():
                os.sched_yield()
            cgroups.sweep()
            assert sleeper.wait() != 0
        assert not any(folder.exists() for folder in (*left.folders, elsewhere))
        assert all(folder.exists() for folder in (*mine, *other.folders))
        assert other.try_to_remove()
        assert (await run(sandbox, "true")).exit_code == 0


def test_where_groups_cannot_be_seen(tmp_path):
    missing = find_cgroups(membership=tmp_path / "nothing")
    assert "cannot be seen" in missing.missing
    assert missing.make("x", LIMITS) is None
    assert missing.sweep() == []
    assert "not limited" in missing.unlimited()


def test_where_nothing_is_handed_down(tmp_path):
    (tmp_path / "membership").write_text("0::/a\n")
    (tmp_path / "mounts").write_text(mount(tmp_path))
    assert "no mounted hierarchy" in find_cgroups(
        membership=tmp_path / "membership", mounts=tmp_path / "mounts"
    ).missing  # fmt: skip


def mount(place: Path, *, shown: str = "/") -> str:
    return f"30 20 0:25 {shown} {place} rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"


class TestVersion2:
    """On a model: folders and files as the kernel shows them."""

    @pytest.fixture
    def tree(self, tmp_path):
        inner = tmp_path / "user.slice" / "app.slice" / "our.scope"
        inner.mkdir(parents=True)
        for folder, given in ((tmp_path, "cpu memory pids"), (inner.parent, "memory pids"), (inner, "")):
            (folder / "cgroup.subtree_control").write_text(f"{given}\n")
        return tmp_path

    def test_nearest_that_hands_both_controllers_down(self, tree):
        (found,) = candidates("0::/user.slice/app.slice/our.scope\n", mount(tree))
        assert found == Cgroups(version=2, parents=(tree / "user.slice" / "app.slice",))

    def test_in_a_container_that_sees_a_part(self, tree):
        text = mount(tree / "user.slice" / "app.slice", shown="/user.slice/app.slice")
        (found,) = candidates("0::/user.slice/app.slice/our.scope\n", text)
        assert found.parents == (tree / "user.slice" / "app.slice",)

    @pytest.mark.parametrize("group", ["/../other", "/elsewhere"])
    def test_group_that_is_not_seen(self, tree, group):
        assert candidates(f"0::{group}\n", mount(tree / "user.slice", shown="/user.slice")) == []

    def test_version_1_where_its_hierarchies_are(self):
        text = "".join(
            f"3{n} 20 0:2{n} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n"
            for n, name in enumerate(("cpu,cpuacct", "memory", "pids"))
        )
        (found,) = candidates("5:memory:/ours\n4:pids:/\n3:cpu,cpuacct:/\n1:name=systemd:/x\n0::/\n", text)
        assert found == Cgroups(version=1, parents=(Path("/sys/fs/cgroup/memory/ours"), Path("/sys/fs/cgroup/pids")))

    def test_limits_are_written(self, tree):
        parent = tree / "user.slice" / "app.slice"
        group = Cgroups(version=2, parents=(parent,)).make("one", LIMITS)
        assert (parent / "one" / "memory.max").read_text() == str(512 * MIB)
        assert (parent / "one" / "pids.max").read_text() == "108"
        (parent / "one" / "memory.current").write_text("5\n")
        assert (group.memory().now_bytes, group.memory().peak_bytes) == (5, None)
        (parent / "one" / "memory.peak").write_text("7\n")
        assert group.memory().peak_bytes == 7

    async def test_a_process_joins_and_is_killed(self):
        """On the kernel, where the hierarchy is mounted and may be written; it needs no controllers for that."""
        places = [
            Path(line.split(" ")[4])
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if " - cgroup2 " in line and os.access(line.split(" ")[4], os.W_OK)
        ]
        for place in places:
            folder = place / f"{Owner.this_process().prefix}test"
            folder.mkdir()
            group = Cgroup(2, (folder,))
            with subprocess.Popen(group.entering([sys.executable, "-c", "import time; time.sleep(1000)"])) as sleeper:
                while str(sleeper.pid) not in group.joins[0].read_text().split():
                    await asyncio.sleep(0)
                assert not group.try_to_remove()
                await group.remove()
                assert sleeper.wait() == -9
            assert not folder.exists()
            assert group.memory() is None


@pytest.mark.parametrize("kind", KINDS)
async def test_group_cannot_be_seen_from_inside(kind):
    """Nor left: the sandbox has a cgroup namespace, and no file system of groups."""
    async with ALL[kind]() as provider, await provider.lease(SandboxSpec(), patience()) as sandbox:
        done = await run(sandbox, "cat", "/proc/self/cgroup")
        assert "agentenv-sandbox" not in said(done)
        assert (await run(sandbox, "cat", "/sys/fs/cgroup/cgroup.procs")).exit_code == 1
