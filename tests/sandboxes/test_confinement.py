"""How exactly the kinds that hold confine commands, beyond the conformance suite (``test_conformance.py``)."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.testing.contracts.sandbox_calls import patience, python, said, shell
from agentenv.testing.stores import InMemoryBlobs
from tests.sandboxes.kinds import KINDS

LIMITS = SandboxLimits(
    memory_bytes=512 << 20, processes=100, tmp_bytes=8 << 20, file_bytes=32 << 20, output_bytes=1 << 16
)


@pytest.fixture(params=KINDS)
async def provider(request):
    async with KINDS[request.param]() as provider:
        yield provider


@pytest.fixture
async def sandbox(provider):
    async with await provider.lease(SandboxSpec(limits=LIMITS), patience()) as sandbox:
        yield sandbox


# What a command can reach.


async def test_environment_is_the_sandboxes_own(sandbox):
    """Nothing of bubblewrap's, of the supervisor's or of the harness's is in it."""
    assert {line.split("=")[0] for line in said(await shell(sandbox, "env")).splitlines()} == {
        "AGENTENV_JOB", "HOME", "LANG", "PATH", "PWD", "TMPDIR", "USER",
    }  # fmt: skip


async def test_host_files_cannot_be_seen(sandbox):
    """The home folders, the shadow file and the sockets of the host are not there."""
    done = await shell(
        sandbox,
        "for f in /etc/shadow /root /home /var/run /run/docker.sock /sys/kernel /var/lib; do"
        " test -e $f && echo $f; done; true",
    )
    assert said(done) == ""
    names = await shell(sandbox, "ls /; ls /etc")
    assert set(names.stdout.head.split()) <= set(
        b"bin dev etc lib lib32 lib64 libx32 proc run sbin tmp usr var workspace "
        b"alternatives group hosts ld.so.cache passwd".split()
    )


async def test_user_is_an_ordinary_one(sandbox):
    """Without groups, without a capability that a program could bring along, and without core files."""
    done = await shell(sandbox, "grep CapBnd /proc/self/status; id -u; id -G; ulimit -c")
    capabilities, uid, groups, core = said(done).splitlines()
    assert capabilities.split()[1] == "0" * 16
    assert uid != "0"
    assert groups == uid if os.geteuid() == 0 else "0" not in groups.split()
    assert core == "0"


async def test_mounts_are_closed_to_what_is_not_needed(sandbox):
    """To setuid files everywhere, and to writers but in the places for them."""
    mounts = (await shell(sandbox, "cat /proc/mounts")).stdout.head.decode()
    for line in mounts.splitlines():
        _, place, kind, options, *_ = line.split()
        assert "nosuid" in options or kind == "proc", line
        assert "ro" in options.split(",") or place in {
            "/workspace",
            "/tmp",
            "/dev/shm",
            "/proc",
            "/dev/pts",
            "/dev/null",
            "/dev/zero",
            "/dev/full",
            "/dev/random",
            "/dev/urandom",
            "/dev/tty",
        }, line


async def test_loopback_is_its_own(sandbox):
    """And works; names of this machine lead to it."""
    done = await python(
        sandbox,
        """
import socket
own = socket.create_server(("localhost", 0)); socket.create_connection(own.getsockname()); print("own loopback")
print(sorted(name for _, name in socket.if_nameindex()))
""",
    )
    assert said(done) == "own loopback\n['lo']\n"


async def test_risky_system_calls_are_refused(sandbox):
    """By number, with arguments that would reach the call if the filter let it pass."""
    x86 = {
        "ptrace": 101,
        "unshare": 272,
        "setns": 308,
        "mount": 165,
        "keyctl": 250,
        "bpf": 321,
        "perf_event_open": 298,
        "userfaultfd": 323,
        "io_uring_setup": 425,
        "process_vm_readv": 310,
        "name_to_handle_at": 303,
        "personality": 135,
        "init_module": 175,
        "reboot": 169,
        "chroot": 161,
        "pidfd_getfd": 438,
        "clock_settime": 227,
        "syslog": 103,
    }
    arm = {
        "ptrace": 117,
        "unshare": 97,
        "setns": 268,
        "mount": 40,
        "keyctl": 219,
        "bpf": 280,
        "perf_event_open": 241,
        "userfaultfd": 282,
        "io_uring_setup": 425,
        "process_vm_readv": 270,
        "name_to_handle_at": 264,
        "personality": 92,
        "init_module": 105,
        "reboot": 142,
        "chroot": 51,
        "pidfd_getfd": 438,
        "clock_settime": 112,
        "syslog": 116,
    }
    calls = x86 if platform.machine() == "x86_64" else arm
    done = await python(
        sandbox,
        f"""
import ctypes, errno, fcntl, os, pty
libc = ctypes.CDLL(None, use_errno=True)
for name, number in {calls!r}.items():
    result = libc.syscall(number, 0, 0, 0, 0, 0, 0)
    print(name, result, errno.errorcode.get(ctypes.get_errno()))
clone = {56 if platform.machine() == "x86_64" else 220}
print("clone", libc.syscall(clone, 0x10000000 | 17, 0, 0, 0, 0), errno.errorcode[ctypes.get_errno()])
print("clone3", libc.syscall(435, 0, 0), errno.errorcode[ctypes.get_errno()])
master, slave = pty.openpty()
try: fcntl.ioctl(slave, 0x5412, b"x"); print("injected")
except OSError as error: print("TIOCSTI", errno.errorcode[error.errno])
""",
    )
    expected = [f"{name} -1 EPERM" for name in calls] + ["clone -1 EPERM", "clone3 -1 ENOSYS", "TIOCSTI EPERM"]
    assert said(done).splitlines() == expected


# What the harness's files API can be made to read.


async def test_links_within_the_workspace_are_followed(sandbox):
    await shell(sandbox, "mkdir d; echo x > d/real; ln -s d/real link; ln -s loop loop; ln -s nowhere dangling")
    assert await sandbox.read("link") == b"x\n"
    with pytest.raises(OSError, match=r"(?i)symbolic"):
        await sandbox.read("loop")
    with pytest.raises(FileNotFoundError):
        await sandbox.read("dangling")


async def test_closed_folders_and_files_are_in_the_snapshot(sandbox):
    """A mode is no place to hide; it is what it was afterwards."""
    await shell(sandbox, "mkdir -p a/b; echo x > a/b/c; chmod 000 a/b/c a/b a")
    blobs = InMemoryBlobs()
    snapshot = await sandbox.snapshot(blobs)
    assert {path: blobs.get(spill.sha256) for path, spill in snapshot.items()} == {"a/b/c": b"x\n"}
    assert said(await shell(sandbox, "stat -c %a a; chmod 700 a; stat -c %a a/b")) == "0\n0\n"


async def test_every_namespace_is_its_own(sandbox):
    done = await shell(sandbox, "cd /proc/self/ns; stat -L -c %i cgroup ipc mnt net pid user uts")
    ours = {str(path.stat().st_ino) for path in Path("/proc/self/ns").iterdir()}
    assert not ours & set(said(done).split())
    assert len(said(done).split()) == 7
