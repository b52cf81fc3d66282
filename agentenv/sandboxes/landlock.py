"""Weak sandboxes, for machines that allow no namespaces: Landlock, a system-call filter, limits per process.

Nothing of the host's files can be read but its programs and ``/proc``, nothing written but the workspace and a folder
for temporary files, no socket made. What does not hold is listed in `LandlockLauncher.identity`, and all who use it are
told so.
"""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentenv.core.sandbox import SandboxSpec
from agentenv.errors import SandboxFault
from agentenv.sandboxes.host_system import LANDLOCK_UID, SEARCH_PATH, system_folders, system_settings
from agentenv.sandboxes.launching import Launch
from agentenv.sandboxes.seccomp import build_filter
from agentenv.sandboxes.supervised_provider import SupervisedProvider
from agentenv.sandboxes.warden.kernel import landlock_version
from agentenv.sandboxes.warden_launcher import WardenLauncher, no_settings

if TYPE_CHECKING:
    from agentenv.sandboxes.warden.settings import Settings

_UNCOUNTED = 1 << 30
_USERS_SHARE = 16
"""Without a control group the kernel counts all of the user's processes: how many sandboxes' worth may run."""
_SIGNALS_STAY_SINCE = 6
"""Version of Landlock that keeps signals inside."""


class BesideLauncher(WardenLauncher):
    """Sandboxes without namespaces: their workspace is a folder of the host, seen where it lies."""

    weak = True
    workspace_inside = "(the workspace's place on the host)"
    environment = (("PATH", SEARCH_PATH), ("USER", "sandbox"), ("LANG", "C.UTF-8"))

    def settings(self, workspace: Path | None, spec: SandboxSpec, lease: Path) -> Settings:
        del workspace  # one in memory takes a mount, which takes a namespace
        folder, temporary = lease / "workspace", lease / "tmp"
        temporary.mkdir(mode=0o700)
        if self.uid != os.geteuid():
            os.chown(temporary, self.uid, self.uid)
        return {
            **no_settings(),
            "kind": self.name,
            "user": self.uid,
            "processes": spec.limits.processes * _USERS_SHARE if self.cgroups.missing else 0,
            "workspace": os.fsencode(folder),
            "writable": [os.fsencode(folder), os.fsencode(temporary)],
        }

    def described(self, launch: Launch, spec: SandboxSpec, lease: Path) -> Launch:
        temporary = str(lease / "tmp")
        return replace(
            launch,
            workspace_inside=str(lease / "workspace"),
            environment=(("HOME", temporary), ("TMPDIR", temporary)),
            # The kernel would count the processes of all the user's sandboxes, and the files of the whole disk.
            limits=replace(spec.limits, processes=_UNCOUNTED, workspace_bytes=None),
        )

    def remedy(self, said: str) -> str:
        if "landlock" in said:
            return "Landlock needs Linux 5.13, with landlock among the modules of /sys/kernel/security/lsm."
        return f"The folder of the workspaces must be reachable for user {self.uid}: set TMPDIR to one that is."

    def shortcomings(self) -> list[str]:
        """Say what is not enforced for want of namespaces, in either of the weak kinds."""
        missing = ["workspace and temporary files are limited by the size of one file only"]
        if self.cgroups.missing:
            missing += [self.cgroups.unlimited(), "the number of processes is limited for the user as a whole"]
        return missing


class LandlockLauncher(BesideLauncher):
    """See the module."""

    name = "landlock"
    user_of_root = LANDLOCK_UID

    def settings(self, workspace: Path | None, spec: SandboxSpec, lease: Path) -> Settings:
        if spec.network:
            raise SandboxFault.permanent(
                f"{', '.join(spec.network)} cannot be reached from a landlock sandbox: it has no network at all. "
                "Remedy: another kind of sandbox"
            )
        return {
            **super().settings(workspace, spec, lease),
            "filter": build_filter(platform.machine(), sockets=False),
            "system_paths": [path.encode() for path in (*system_folders(), *system_settings(), *_ACCOUNTS)],
        }

    def identity(self) -> dict[str, str]:
        missing = [
            "processes of the host and their command lines can be seen",
            "a command that kills its own supervisor ends the sandbox",
            *self.shortcomings(),
        ]
        if landlock_version() < _SIGNALS_STAY_SINCE:
            missing.append("signals reach every process of the same user")
        return {**super().identity(), "weak": "; ".join(missing)}


_ACCOUNTS = ("/etc/passwd", "/etc/group", "/etc/hosts")


class LandlockProvider(SupervisedProvider):
    """Leases sandboxes that only Landlock, a filter and limits hold; for who asks for it by name."""

    def __init__(self, *, workspace_root: Path | None = None) -> None:
        """Make a provider; nothing is started.

        Args:
            workspace_root: Folder for the workspaces, which the sandboxes' user can reach; None is the system's for
                temporary files.
        """
        super().__init__(LandlockLauncher(), workspace_root=workspace_root)
