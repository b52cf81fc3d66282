"""How exactly a container confines commands: the tests of the other kinds, and what differs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from agentenv.core.sandbox import SandboxSpec
from agentenv.testing.contracts.sandbox_calls import patience, python, said, shell
from tests.sandboxes.kinds import WEAK
from tests.sandboxes.test_confinement import *  # noqa: F403 - tests are found by their names
from tests.sandboxes.test_confinement import LIMITS
from tests.sandboxes.trespassing import processes_of, trespasses

# The engine adds a few empty folders and files of its own; the mounted root has no nosuid, which no-new-privileges
# makes up for; and its containers share the machine's user namespace. Each has a test of its own below.
del test_host_files_cannot_be_seen, test_mounts_are_closed_to_what_is_not_needed, test_every_namespace_is_its_own  # noqa: F821


@pytest.fixture
def provider(docker_provider):
    return docker_provider


@pytest.fixture
async def sandbox(docker_provider):
    async with await docker_provider.lease(SandboxSpec(limits=LIMITS), patience()) as sandbox:
        yield sandbox


async def test_host_files_are_not_there(sandbox):
    """Nor the engine's socket, nor what /sys tells of the machine, nor its name server."""
    done = await shell(
        sandbox,
        "for f in /etc/shadow /root /home /var/run /run/docker.sock /var/lib; do test -e $f && echo $f; done;"
        "ls /sys; cat /etc/resolv.conf; cat /etc/hostname",
    )
    assert said(done).split() == ["nameserver", "127.0.0.1", "sandbox"]
    names = await shell(sandbox, "ls -A /; ls /etc")
    assert set(names.stdout.head.split()) <= set(
        b".dockerenv bin dev etc lib lib32 lib64 libx32 proc run sbin sys tmp usr var workspace "
        b"alternatives group hostname hosts ld.so.cache mtab passwd resolv.conf".split()
    )


async def test_mounts_that_can_be_written_take_no_setuid_files(sandbox):
    for line in (await shell(sandbox, "cat /proc/mounts")).stdout.head.decode().splitlines():
        _, place, kind, options, *_ = line.split()
        assert "ro" in options.split(",") or "nosuid" in options.split(","), line
        assert "ro" in options.split(",") or place in {"/workspace", "/tmp"} or kind not in {"ext4", "overlay"}, line


async def test_namespaces_are_its_own_but_that_of_users(sandbox):
    done = await shell(sandbox, "cd /proc/self/ns; stat -L -c %i cgroup ipc mnt net pid uts")
    ours = {str(path.stat().st_ino) for path in Path("/proc/self/ns").iterdir()}
    assert not ours & set(said(done).split())
    assert len(said(done).split()) == 6


async def test_two_filters_are_in_place(sandbox):
    """The engine's list of what is allowed, and ours of what is refused."""
    status = said(await shell(sandbox, "cat /proc/self/status"))
    assert re.findall(r"Seccomp_filters:\s+(\d+)", status) == ["2"]


async def test_queues_and_shared_memory_are_bounded(sandbox):
    """A message queue cannot be made at all; shared memory has a size."""
    done = await python(
        sandbox,
        """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
queue = libc.mq_open(b"/q", os.O_CREAT | os.O_RDWR, 0o600, None)
print(queue, errno.errorcode[ctypes.get_errno()])
try:
    with open("/dev/shm/f", "wb", buffering=0) as f:
        for _ in range(32): f.write(bytes(1 << 20))
except OSError as error: print(errno.errorcode[error.errno])
""",
    )
    assert said(done).splitlines() == ["-1 EMFILE", "ENOSPC"]


@pytest.mark.parametrize("weak", WEAK)
async def test_weak_kinds_have_no_rights_over_containers(sandbox, weak):
    """Their commands see the processes of containers on the same machine; as another user."""
    async with WEAK[weak]() as provider, await provider.lease(SandboxSpec(), patience()) as intruder:
        pids = await processes_of(sandbox)
        assert os.geteuid() != 0 or await trespasses(intruder, pids) == ""
