"""Sandboxes made by bubblewrap: own user, mount, process, network, IPC, UTS and cgroup namespaces.

Traps this file is written around, each found by trying (and each a test):

- bubblewrap with real uid 0 leaves ``/proc/sys/kernel/core_pattern`` writable, which is the host: as root it is
  started under another uid, through ``setpriv``.
- ``/proc/1/environ`` shows what bubblewrap was started with, whatever ``--clearenv`` says: it gets a minimal one.
- ``--die-with-parent`` is bound to the thread that started it; and bubblewrap, when it dies while it is starting,
  leaves a child that waits for it for ever. So it is not used: the supervisor ends when its stream is closed or the
  harness's process ends, whichever it sees first (a forked child of the harness may hold the stream open).
- ``/dev`` and ``/dev/shm`` are one tmpfs without a size: the first is made read-only, the second mounted anew.
"""

# Temporary folders named here are the sandbox's own.
# ruff: noqa: S108

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
from functools import cache
from pathlib import Path

from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.errors import SandboxFault
from agentenv.sandboxes.bundle import ENTRY, supervisor_zip
from agentenv.sandboxes.launching import Container, Launch, Launcher
from agentenv.sandboxes.seccomp import build_filter
from agentenv.sandboxes.supervised_provider import SupervisedProvider

UNPRIVILEGED_UID = 10001
"""A bare number; no account is needed."""

_PATH = "/usr/local/bin:/usr/bin:/bin"
_SEARCH_PATH = f"{_PATH}:/usr/sbin:/sbin"
_INTERPRETERS = ("/usr/bin/python3", "/usr/local/bin/python3")
"""Below ``/usr``, which is what a sandbox sees of the host; readable for every user, unlike one in a home folder."""
_SUPERVISOR = "/run/supervisor.zip"
_SHARED_MEMORY_BYTES = 16 << 20
_STREAM_BYTES = 1 << 20
_LAST_WORDS = 2000
_GROUP_TICK_S = 0.001
_EXIT_S = 2.0
"""For bubblewrap to follow its PID 1, before it is killed too."""


class BwrapLauncher(Launcher):
    """See the module."""

    name = "bwrap"
    workspace_inside = "/workspace"
    environment = (
        ("PATH", _PATH),
        ("HOME", "/tmp"),
        ("TMPDIR", "/tmp"),
        ("USER", "sandbox"),
        ("LANG", "C.UTF-8"),
    )

    def __init__(self, *, search_path: str = _SEARCH_PATH) -> None:
        self.uid = os.geteuid() or UNPRIVILEGED_UID
        self._search_path = search_path

    async def launch(self, workspace: Path | None, spec: SandboxSpec, *, lease: Path) -> Launch:
        program = [*self._other_user(), self._program("bwrap", "bubblewrap")]
        await asyncio.to_thread(supervisor_zip, _interpreter())  # made once; later calls find it
        ours, theirs = socket.socketpair()
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_STREAM_BYTES)
        except BaseException:
            theirs.close()
            raise
        # Nothing is awaited from here on, so that no cancellation comes between a process and who ends it.
        try:
            container = self._start(program, workspace, spec, lease, theirs)
        except BaseException:
            writer.close()
            raise
        finally:
            theirs.close()
        return Launch(reader=reader, writer=writer, container=container)

    def _start(
        self, program: list[str], workspace: Path | None, spec: SandboxSpec, lease: Path, stream: socket.socket
    ) -> _BwrapContainer:
        # Not pipes: bubblewrap would die of writing to one whose reader died, and leave a child that waits for it.
        told = os.memfd_create("agentenv-told")
        said = os.memfd_create("agentenv-said")
        given: list[int] = []
        try:
            arguments = [*_named_after(lease), *self._arguments(workspace, spec.limits, given)]
            # Blocks for the exec of a small program.
            process = subprocess.Popen(
                [*program, "--info-fd", str(told), *arguments],
                stdin=stream.fileno(),
                stdout=stream.fileno(),
                stderr=said,
                pass_fds=[told, *given],
                env={"PATH": _PATH, "LANG": "C.UTF-8"},
                start_new_session=True,
            )
        except BaseException:
            os.close(told)
            os.close(said)
            raise
        finally:
            for fd in given:
                os.close(fd)
        return _BwrapContainer(process, told=told, said=said)

    def _other_user(self) -> list[str]:
        if os.geteuid() != 0:
            return []
        uid = str(self.uid)
        return [
            self._program("setpriv", "util-linux"),
            "--reuid",
            uid,
            "--regid",
            uid,
            "--clear-groups",
            "--no-new-privs",
        ]

    def _program(self, name: str, package: str) -> str:
        found = shutil.which(name, path=self._search_path)
        if found is None:
            raise SandboxFault.permanent(f"{name} is not installed. Remedy: apt-get install {package}")
        return found

    def _arguments(self, workspace: Path | None, limits: SandboxLimits, given: list[int]) -> list[str]:
        def data(content: bytes, path: str) -> list[str]:
            return ["--perms", "0444", "--ro-bind-data", str(_memory(content, given)), path]

        uid = self.uid
        return [
            *("--unshare-all", "--new-session", "--hostname", "sandbox", "--cap-drop", "ALL"),
            *("--clearenv", "--setenv", "PATH", _PATH, "--setenv", "LANG", "C.UTF-8"),
            *("--seccomp", str(_memory(build_filter(platform.machine()), given))),
            *("--ro-bind", "/usr", "/usr", *_system_folders()),
            *("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"),
            *("--ro-bind-try", "/etc/alternatives", "/etc/alternatives"),
            *data(f"root:x:0:0::/:/bin/sh\nsandbox:x:{uid}:{uid}::/tmp:/bin/sh\n".encode(), "/etc/passwd"),
            *data(f"root:x:0:\nsandbox:x:{uid}:\n".encode(), "/etc/group"),
            *data(b"127.0.0.1 localhost sandbox\n::1 localhost\n", "/etc/hosts"),
            *("--proc", "/proc", "--dev", "/dev"),
            *("--size", str(min(limits.tmp_bytes, _SHARED_MEMORY_BYTES)), "--perms", "1777", "--tmpfs", "/dev/shm"),
            *("--size", str(limits.tmp_bytes), "--perms", "1777", "--tmpfs", "/tmp"),
            *("--symlink", "/tmp", "/var/tmp"),
            *_workspace(workspace, limits, self.workspace_inside),
            *data(supervisor_zip(_interpreter()), _SUPERVISOR),
            *("--chdir", self.workspace_inside, "--remount-ro", "/", "--remount-ro", "/dev"),
            *("--as-pid-1", _interpreter(), "-I", "-S", "-c", ENTRY.format(zip=_SUPERVISOR)),
            str(_ourselves(given)),
        ]

    def remedy(self, said: str) -> str:
        if "Unknown option" in said:
            return "bubblewrap 0.7 or newer is needed."
        if "namespace" in said or "uid map" in said or "Operation not permitted" in said:
            return (
                "This machine does not let an ordinary user make namespaces. Allow it: "
                "sysctl kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0; "
                "in a container, docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined."
            )
        if "Permission denied" in said or "bind mount" in said:
            return f"The folder of the workspaces must be reachable for user {self.uid}: set TMPDIR to one that is."
        return "Try: bwrap --unshare-all --ro-bind / / true"

    def identity(self) -> dict[str, str]:
        said = subprocess.run([self._program("bwrap", "bubblewrap"), "--version"], capture_output=True, check=False)
        return {
            "version": said.stdout.decode(errors="replace").strip(),
            "user": str(self.uid),
            "root": _system(),
            "weak": "the memory of all processes together is not limited, only that of each",
        }


class BwrapProvider(SupervisedProvider):
    """Leases bubblewrap sandboxes: the default on Linux."""

    def __init__(self, *, workspace_root: Path | None = None, search_path: str = _SEARCH_PATH) -> None:
        """Make a provider; nothing is started.

        Args:
            workspace_root: Folder for the workspaces, which the sandboxes' user can reach; None is the system's for
                temporary files.
            search_path: Where ``bwrap`` and ``setpriv`` are looked for.
        """
        super().__init__(BwrapLauncher(search_path=search_path), workspace_root=workspace_root)


class _BwrapContainer(Container):
    """bubblewrap, which waits for the sandbox's PID 1, which the kernel lets go only when all below it are dead."""

    def __init__(self, process: subprocess.Popen[bytes], *, told: int, said: int) -> None:
        self._process = process
        self._outer = os.pidfd_open(process.pid)
        self._inner = -1
        self._told = told
        self._said = said

    def kill(self) -> None:
        self._find_inner()
        # The inner one first: the outer then ends by itself, and by that says that nothing is left.
        with contextlib.suppress(ProcessLookupError):
            if self._inner >= 0:
                signal.pidfd_send_signal(self._inner, signal.SIGKILL)
            elif self._outer >= 0:
                # Before bubblewrap names its child, that child waits for a word from it, for ever if need be, and is
                # in its process group still.
                os.killpg(self._process.pid, signal.SIGKILL)

    def _find_inner(self) -> None:
        """Learn which process is PID 1; bubblewrap says so before it lets it go on."""
        if self._inner >= 0 or self._told < 0:
            return
        with contextlib.suppress(OSError, ValueError, KeyError):  # not said yet, or gone already
            self._inner = os.pidfd_open(json.loads(os.pread(self._told, 4096, 0))["child-pid"])

    async def gone(self) -> None:
        if self._outer < 0:
            return
        try:
            async with asyncio.timeout(_EXIT_S):
                await _readable(self._outer)
        except TimeoutError:
            self._process.kill()
            await _readable(self._outer)
        self.kill()  # where it was named between the first look and the end of who named it
        self._process.poll()
        if self._inner >= 0:
            await _readable(self._inner)
        else:
            await _group_gone(self._process.pid)
        self._words = self.last_words()
        for fd in (self._outer, self._inner, self._told, self._said):
            if fd >= 0:
                os.close(fd)
        self._outer = self._inner = self._told = self._said = -1

    def last_words(self) -> str:
        if self._said < 0:
            return self._words
        size = os.fstat(self._said).st_size
        return os.pread(self._said, _LAST_WORDS, max(0, size - _LAST_WORDS)).decode(errors="replace").strip()


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    loop.add_reader(fd, lambda: ended.done() or ended.set_result(None))
    try:
        await ended
    finally:
        loop.remove_reader(fd)


async def _group_gone(group: int) -> None:
    """Wait for the end of a process group that was killed and whose members are nobody's to wait for."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody, or by now somebody else
        while True:
            os.killpg(group, 0)
            await asyncio.sleep(_GROUP_TICK_S)


def _named_after(lease: Path) -> tuple[str, ...]:
    """Arguments without effect inside, by which bubblewrap is found when the owner of the lease is dead."""
    return "--setenv", "AGENTENV_LEASE", str(lease), "--unsetenv", "AGENTENV_LEASE"


def _workspace(folder: Path | None, limits: SandboxLimits, inside: str) -> tuple[str, ...]:
    if folder is not None:
        return "--bind", str(folder), inside
    assert limits.workspace_bytes is not None, "a workspace without a size is a folder"
    # The number of files cannot be said here; the supervisor counts them.
    return "--size", str(limits.workspace_bytes), "--perms", "0700", "--tmpfs", inside


def _ourselves(given: list[int]) -> int:
    """Open this process, to be watched for its end; the descriptor is added to ``given``."""
    fd = os.pidfd_open(os.getpid())
    given.append(fd)
    return fd


def _memory(content: bytes, given: list[int]) -> int:
    """Put bytes where the started program can read them by a descriptor; it is added to ``given``."""
    fd = os.memfd_create("agentenv")
    given.append(fd)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _interpreter() -> str:
    for path in _INTERPRETERS:
        if os.access(path, os.X_OK):
            return path
    raise SandboxFault.permanent(
        f"no Python for the sandbox: neither {' nor '.join(_INTERPRETERS)} exists. Remedy: apt-get install python3"
    )


@cache
def _system_folders() -> tuple[str, ...]:
    """Arguments for what beside ``/usr`` holds programs: links into it, or folders of their own on older systems."""
    arguments: list[str] = []
    for path in map(Path, ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")):
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    return tuple(arguments)


def _system() -> str:
    try:
        return "/usr of " + platform.freedesktop_os_release().get("PRETTY_NAME", "an unnamed system")
    except OSError:
        return "/usr of an unnamed system"
