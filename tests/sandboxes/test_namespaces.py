"""Sandboxes in namespaces pass the contract suite; what is told where they cannot be made."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.errors import SandboxFault
from agentenv.sandboxes.namespaces import NamespacesLauncher, NamespacesProvider
from agentenv.sandboxes.warden.kernel import landlock_version
from agentenv.testing.contracts.sandbox import SandboxContract
from agentenv.testing.contracts.sandbox_calls import patience, python, said, shell


class TestNamespacesSandbox(SandboxContract):
    @pytest.fixture
    async def provider(self):
        async with NamespacesProvider() as provider:
            yield provider


async def test_workspace_bytes_and_files_are_the_kernels(tmp_path):
    """Of all files together, to the inode; and so for the other folders that can be written."""
    limits = SandboxLimits(workspace_bytes=4 << 20, workspace_files=50, tmp_bytes=2 << 20)
    async with (
        NamespacesProvider() as provider,
        await provider.lease(SandboxSpec(limits=limits), patience()) as sandbox,
    ):
        done = await python(
            sandbox,
            """
import os
def fill(folder, size):
    made = 0
    try:
        for number in range(100_000):
            with open(f"{folder}/{number}", "wb") as file:
                made += 1
                file.write(bytes(size))
    except OSError as error:
        print(folder, error.strerror, made)
    for name in os.listdir(folder):
        os.remove(f"{folder}/{name}")
fill(".", 0)
fill(".", 1 << 20)
fill("/tmp", 0)
fill("/dev/shm", 0)
""",
        )
        kinds = [line.rsplit(" ", 1) for line in said(done).splitlines()]
        assert [kind for kind, _ in kinds] == [
            f"{folder} No space left on device" for folder in (".", ".", "/tmp", "/dev/shm")
        ]
        assert [int(made) <= most for (_, made), most in zip(kinds, (50, 5, 20_001, 20_001), strict=True)] == [True] * 4


async def test_workspace_on_the_disk(tmp_path):
    """Where no size is asked for, it is a folder of the host."""
    root = tmp_path
    limits = SandboxLimits(workspace_bytes=None)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o711)
    async with (
        NamespacesProvider(workspace_root=root) as provider,
        await provider.lease(SandboxSpec(limits=limits, files={"f": b"x"}), patience()) as sandbox,
    ):
        (lease,) = root.iterdir()
        assert (lease / "workspace" / "f").read_bytes() == b"x"
        await shell(sandbox, "echo y > g")
        assert (lease / "workspace" / "g").read_bytes() == b"y\n"
        assert (lease / "workspace" / "g").stat().st_uid == NamespacesLauncher().uid
    assert list(root.iterdir()) == []


async def test_unreachable_workspaces_say_what_to_set(tmp_path):
    """As root the sandboxes' user is another one, and has to reach the folder."""
    if os.geteuid() != 0:
        return
    (tmp_path / "closed").mkdir(mode=0o700)
    async with NamespacesProvider(workspace_root=tmp_path / "closed") as provider:
        with pytest.raises(SandboxFault, match="TMPDIR") as refused:
            await provider.lease(SandboxSpec(limits=SandboxLimits(workspace_bytes=None)), patience())
        assert not refused.value.retryable


async def test_command_line_of_the_supervisor_is_wiped(tmp_path):
    """It would tell where things lie on the host."""
    async with NamespacesProvider() as provider, await provider.lease(SandboxSpec(), patience()) as sandbox:
        assert (await shell(sandbox, "tr -d '\\0' </proc/1/cmdline")).stdout.head == b""


async def test_landlock_holds_beside_the_mounts():
    """Where the kernel has it. Seen by what neither mounts nor modes nor missing capabilities refuse: a whiteout."""
    async with NamespacesProvider() as provider, await provider.lease(SandboxSpec(), patience()) as sandbox:
        done = await python(
            sandbox,
            """
import os, stat
try:
    os.mknod("whiteout", stat.S_IFCHR | 0o600, os.makedev(0, 0))
    print("made")
except OSError as error:
    print(error.strerror)
""",
        )
    assert said(done) == ("Permission denied\n" if landlock_version() else "made\n")


REFUSED = """
import asyncio, platform, sys
from agentenv.sandboxes.namespaces import NamespacesProvider
from agentenv.sandboxes.landlock import LandlockProvider
from agentenv.sandboxes.seccomp import build_filter
from agentenv.sandboxes.warden import kernel

async def main():
    kernel.forbid_new_privileges()
    kernel.filter_system_calls(build_filter(platform.machine()))
    for make in (NamespacesProvider, LandlockProvider):
        async with make() as provider:
            status = await provider.probe()
            print(provider.name, status.works, status.detail)

asyncio.run(main())
"""


def test_machine_that_refuses_namespaces_is_told_what_to_allow():
    """As in a container with the usual filter: the remedy is named; what needs no namespace works there."""
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, check=True, timeout=60)
    namespaces, landlock = done.stdout.splitlines()
    assert namespaces.startswith("namespaces False")
    assert "unshare: Operation not permitted" in namespaces
    assert "kernel.unprivileged_userns_clone=1" in namespaces
    assert landlock.startswith(f"landlock {landlock_version() > 0}")
