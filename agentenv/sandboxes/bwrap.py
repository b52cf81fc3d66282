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
import os
import platform
import shutil
import subprocess
from functools import cached_property
from pathlib import Path

from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.errors import SandboxFault
from agentenv.sandboxes.bundle import ENTRY, supervisor_zip
from agentenv.sandboxes.cgroups import Cgroups, find_cgroups
from agentenv.sandboxes.host_system import (
    SEARCH_PATH,
    UNPRIVILEGED_UID,
    account_files,
    interpreter,
    system_folders,
    system_links,
    system_name,
    system_settings,
)
from agentenv.sandboxes.launching import Launch, Launcher
from agentenv.sandboxes.own_root import ENVIRONMENT, WORKSPACE, shared_memory_bytes
from agentenv.sandboxes.process_container import ProcessContainer, launched, memory_file, open_this_process
from agentenv.sandboxes.seccomp import build_filter
from agentenv.sandboxes.supervised_provider import SupervisedProvider
from agentenv.sandboxes.workspaces import marked

_PROGRAMS = f"{SEARCH_PATH}:/usr/sbin:/sbin"
_SUPERVISOR = "/run/supervisor.zip"


class BwrapLauncher(Launcher):
    """See the module."""

    name = "bwrap"
    workspace_inside = WORKSPACE
    environment = ENVIRONMENT

    def __init__(self, *, search_path: str = _PROGRAMS) -> None:
        self.uid = os.geteuid() or UNPRIVILEGED_UID
        self._search_path = search_path

    @cached_property
    def cgroups(self) -> Cgroups:
        """Where the sandboxes' groups are made. Blocks the first time."""
        return find_cgroups()

    async def launch(self, workspace: Path | None, spec: SandboxSpec, *, lease: Path) -> Launch:
        program = [*self._other_user(), self._program("bwrap", "bubblewrap")]
        await asyncio.to_thread(self._prepare)  # once; later calls find it
        return await launched(lambda stream: self._start(program, workspace, spec, lease, stream))

    def _start(
        self, program: list[str], workspace: Path | None, spec: SandboxSpec, lease: Path, stream: int
    ) -> ProcessContainer:
        group = self.cgroups.make(lease.name, spec.limits)

        def command(told: int, given: list[int]) -> list[str]:
            arguments = [*_named_after(lease), *self._arguments(workspace, spec.limits, given)]
            whole = [*program, "--info-fd", str(told), *arguments]
            return whole if group is None else group.entering(whole)

        return ProcessContainer.start(command, stream=stream, group=group)

    def _prepare(self) -> None:
        supervisor_zip(interpreter())
        _ = self.cgroups

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
            return ["--perms", "0444", "--ro-bind-data", str(memory_file(content, given)), path]

        return [
            *("--unshare-all", "--new-session", "--hostname", "sandbox", "--cap-drop", "ALL"),
            *("--clearenv", "--setenv", "PATH", SEARCH_PATH, "--setenv", "LANG", "C.UTF-8"),
            *("--seccomp", str(memory_file(build_filter(platform.machine()), given))),
            *(part for path in (*system_folders(), *system_settings()) for part in ("--ro-bind", path, path)),
            *(part for path, target in system_links() for part in ("--symlink", target, path)),
            *(part for path, content in account_files(self.uid).items() for part in data(content, path)),
            *("--proc", "/proc", "--dev", "/dev"),
            *("--size", str(shared_memory_bytes(limits)), "--perms", "1777", "--tmpfs", "/dev/shm"),
            *("--size", str(limits.tmp_bytes), "--perms", "1777", "--tmpfs", "/tmp"),
            *("--symlink", "/tmp", "/var/tmp"),
            *_workspace(workspace, limits, self.workspace_inside),
            *data(supervisor_zip(interpreter()), _SUPERVISOR),
            *("--chdir", self.workspace_inside, "--remount-ro", "/", "--remount-ro", "/dev"),
            *("--as-pid-1", interpreter(), "-I", "-S", "-c", ENTRY.format(zip=_SUPERVISOR)),
            str(open_this_process(given)),
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

    def sweep(self) -> list[Path]:
        return self.cgroups.sweep()

    def identity(self) -> dict[str, str]:
        said = subprocess.run([self._program("bwrap", "bubblewrap"), "--version"], capture_output=True, check=False)
        return {
            "version": said.stdout.decode(errors="replace").strip(),
            "user": str(self.uid),
            "root": system_name(),
            "cgroups": self.cgroups.missing or f"version {self.cgroups.version}",
            "weak": self.cgroups.unlimited() or "nothing",
        }


class BwrapProvider(SupervisedProvider):
    """Leases bubblewrap sandboxes: the default on Linux."""

    def __init__(self, *, workspace_root: Path | None = None, search_path: str = _PROGRAMS) -> None:
        """Make a provider; nothing is started.

        Args:
            workspace_root: Folder for the workspaces, which the sandboxes' user can reach; None is the system's for
                temporary files.
            search_path: Where ``bwrap`` and ``setpriv`` are looked for.
        """
        super().__init__(BwrapLauncher(search_path=search_path), workspace_root=workspace_root)


def _named_after(lease: Path) -> tuple[str, ...]:
    """Arguments without effect inside, by which bubblewrap is found when the owner of the lease is dead."""
    name, value = marked(lease)
    return "--setenv", name, value, "--unsetenv", name


def _workspace(folder: Path | None, limits: SandboxLimits, inside: str) -> tuple[str, ...]:
    if folder is not None:
        return "--bind", str(folder), inside
    assert limits.workspace_bytes is not None, "a workspace without a size is a folder"
    # The number of files cannot be said here; the supervisor counts them.
    return "--size", str(limits.workspace_bytes), "--perms", "0700", "--tmpfs", inside
