"""What a hostile command can reach, and what the harness can be made to read; in every kind that holds."""

from __future__ import annotations

import os
import platform
import re
import socket
from pathlib import Path

import pytest
from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.testing.contracts.sandbox import patience, python, said, shell
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


async def test_supervisor_tells_nothing(sandbox, monkeypatch):
    """No environment, memory or descriptor of it, and nothing of the harness, can be read by a command."""
    monkeypatch.setenv("HARNESS_SECRET", "key-1234")
    done = await shell(
        sandbox,
        "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c 'key[-]1234';"
        "for f in /proc/1/environ /proc/1/mem /proc/1/maps /proc/1/fd/0 /proc/1/root/etc; do"
        " test -r $f && head -c 10 $f >/dev/null 2>&1 && echo open $f; done; echo done",
    )
    assert said(done) == "0\ndone\n"


async def test_commands_inherit_nothing_but_their_streams(sandbox):
    """No descriptor of bubblewrap, of the supervisor or of the harness is open in them; nor in a kept process."""
    done = await shell(sandbox, "ls -l /proc/self/fd | sed -n 's/.* \\([0-9]* -> .*\\)/\\1/p'; env")
    lines = said(done).splitlines()
    assert [line.split()[0] for line in lines if "->" in line] == ["0", "1", "2", "3"]
    assert {line.split("=")[0] for line in lines if "->" not in line} == {
        "AGENTENV_JOB", "HOME", "LANG", "PATH", "PWD", "TMPDIR", "USER",
    }  # fmt: skip
    kept = await sandbox.start(["sh", "-c", "read x; (ls /proc/$$/fd >list); wc -l <list; cat"], deadline=patience())
    assert await kept.request(b"", patience()) == b"3"


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


async def test_nothing_outside_workspace_and_tmp_can_be_written(sandbox):
    done = await shell(
        sandbox,
        "for d in / /usr /usr/bin /etc /run /dev /proc /proc/sys/kernel /var /bin; do"
        " (echo x > $d/probe) 2>/dev/null && echo wrote $d; done;"
        "for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /etc/passwd /usr/bin/env; do"
        " (: >> $f) 2>/dev/null && echo opened $f; done; echo done",
    )
    assert said(done) == "done\n"
    assert said(await shell(sandbox, "echo ok > /tmp/f && echo ok > f && cat /tmp/f f")) == "ok\nok\n"


async def test_privileges_are_gone(sandbox):
    """No capability, no way to get one, a filter in place, and an ordinary user."""
    done = await shell(sandbox, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; id -u; id -G; ulimit -c")
    status = dict(re.findall(r"^(\w+):\s+(\w+)$", said(done), flags=re.MULTILINE))
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    uid, groups, core = said(done).splitlines()[-3:]
    assert uid != "0"
    assert groups == uid if os.geteuid() == 0 else "0" not in groups.split()
    assert core == "0"


async def test_setuid_files_give_nothing(sandbox):
    """Not those of the system, and not one made in the workspace."""
    done = await shell(
        sandbox,
        "id -u; cp /usr/bin/id my-id && chmod 6755 my-id && ./my-id -u;"
        "cp /usr/bin/id /tmp/id && chmod 6755 /tmp/id && /tmp/id -u",
    )
    uid, *others = said(done).split()
    assert uid != "0"
    assert others == [uid, uid]
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


async def test_network_is_empty(sandbox):
    """Only the loopback of its own: no route, no service of the host, no abstract socket of the host."""
    listener = socket.create_server(("127.0.0.1", 0))
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0agentenv-conformance")
    abstract.listen()
    with listener, abstract:
        done = await python(
            sandbox,
            f"""
import socket, os
def attempt(name, family, address):
    s = socket.socket(family); s.settimeout(2)
    try: s.connect(address); print("reached", name)
    except OSError: pass
attempt("host", socket.AF_INET, ("127.0.0.1", {listener.getsockname()[1]}))
attempt("abstract", socket.AF_UNIX, "\\0agentenv-conformance")
attempt("route", socket.AF_INET, ("192.0.2.1", 80))
try: socket.getaddrinfo("example.org", 80); print("resolved")
except OSError: pass
for family in (40, 38, 17):
    for kind in (1, 2, 3, 5):
        try: socket.socket(family, kind); print("family", family)
        except OSError: pass
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


async def test_namespaces_and_devices_cannot_be_made(sandbox):
    done = await shell(
        sandbox,
        "unshare -U true 2>/dev/null && echo namespace; mknod d b 8 0 2>/dev/null && echo device;"
        "mknod /tmp/d c 1 1 2>/dev/null && echo device; date -s @0 2>/dev/null >&2 && echo clock; echo done",
    )
    assert said(done) == "done\n"


async def test_hard_links_to_the_system_cannot_be_made(sandbox):
    done = await shell(sandbox, "ln /usr/bin/env here 2>/dev/null || ln /etc/passwd here 2>/dev/null || echo refused")
    assert said(done) == "refused\n"


async def test_sandboxes_do_not_see_each_other(provider, sandbox):
    async with await provider.lease(SandboxSpec(limits=LIMITS), patience()) as other:
        kept = await other.start(["sh", "-c", "echo $$ > /tmp/mine; exec cat"], deadline=patience())
        await kept.request(b"x", patience())
        done = await shell(sandbox, "ls /proc | grep -c '^[0-9]'; ls -A /tmp; kill -9 -1; true")
        assert await kept.request(b"y", patience()) == b"y"
    assert int(said(done).split()[0]) <= 4


# What the harness's files API can be made to read.


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "/", "/proc/self/environ", "/proc/1/environ", "../..", "/workspace/real", "/tmp"]
)
async def test_links_out_of_the_workspace_are_refused(sandbox, target):
    """Made inside, they lead nowhere from outside: neither reading, writing nor listing follows them."""
    await sandbox.write("real", b"content")
    await shell(sandbox, f"ln -s {target} link; ln -s {target} folder-link")
    for call in (sandbox.read("link"), sandbox.write("link", b""), sandbox.list("link"), sandbox.read("link/passwd")):
        with pytest.raises(PermissionError):
            await call
    kinds = {each.name: each.kind for each in await sandbox.list()}
    assert kinds == {"real": "file", "link": "link", "folder-link": "link"}
    assert set(await sandbox.snapshot(InMemoryBlobs())) == {"real"}


async def test_links_within_the_workspace_are_followed(sandbox):
    await shell(sandbox, "mkdir d; echo x > d/real; ln -s d/real link; ln -s loop loop; ln -s nowhere dangling")
    assert await sandbox.read("link") == b"x\n"
    with pytest.raises(OSError, match=r"(?i)symbolic"):
        await sandbox.read("loop")
    with pytest.raises(FileNotFoundError):
        await sandbox.read("dangling")


async def test_swapped_links_do_not_win_the_race(sandbox):
    """While a process swaps a file for a link out, no read gives what lies outside."""
    await sandbox.write("d/passwd", b"inside")
    await shell(sandbox, "ln -s /etc out")
    process = await sandbox.start(
        ["sh", "-c", "read x; echo go; while :; do mv d e; mv out d; mv d out; mv e d; done"], deadline=patience()
    )
    await process.request(b"", patience())
    seen = set()
    for _ in range(400):
        try:
            seen.add(await sandbox.read("d/passwd"))
        except OSError:
            continue
    assert seen <= {b"inside"}
    await process.aclose()


async def test_special_files_do_not_hang(sandbox):
    await python(
        sandbox,
        "import os, socket\nos.mkfifo('fifo')\nsocket.socket(socket.AF_UNIX).bind('socket')\n"
        "os.truncate(os.open('sparse', os.O_CREAT | os.O_RDWR), 30 << 20)",
    )
    for name in ("fifo", "socket"):
        with pytest.raises(OSError, match="Errno"):
            await sandbox.read(name)
        with pytest.raises(OSError, match="Errno"):
            await sandbox.write(name, b"x")
    assert len(await sandbox.read("sparse", max_bytes=1000)) == 1000
    kinds = {each.name: each.kind for each in await sandbox.list()}
    assert (kinds["fifo"], kinds["socket"], kinds["sparse"]) == ("other", "other", "file")


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
