"""Sandboxes that need no package and no privilege: namespaces, made by a warden through system calls alone.

Own user, mount, process, network, IPC, UTS and cgroup namespaces; a small read-only root built of the host's ``/usr``;
workspace, ``/tmp`` and ``/dev/shm`` in memory, each with a size; no capability; the same system-call filter as
bubblewrap's; and Landlock on top where the kernel has it. As root, the warden first becomes another user: with real
uid 0 the host's ``/proc/sys/kernel/core_pattern`` could be written from inside.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from agentenv.core.sandbox import SandboxSpec
from agentenv.sandboxes.host_system import account_files, system_folders, system_links, system_settings
from agentenv.sandboxes.own_root import ENVIRONMENT, WORKSPACE, shared_memory_bytes
from agentenv.sandboxes.seccomp import build_filter
from agentenv.sandboxes.supervised_provider import SupervisedProvider
from agentenv.sandboxes.warden_launcher import WardenLauncher, no_settings

if TYPE_CHECKING:
    from agentenv.sandboxes.warden.settings import Settings


class NamespacesLauncher(WardenLauncher):
    """See the module."""

    name = "namespaces"
    workspace_inside = WORKSPACE
    environment = ENVIRONMENT

    def settings(self, workspace: Path | None, spec: SandboxSpec, lease: Path) -> Settings:
        del lease
        limits = spec.limits
        return {
            **no_settings(),
            "kind": "namespaces",
            "user": self.uid,
            "filter": build_filter(platform.machine()),
            "workspace": b"" if workspace is None else os.fsencode(workspace),
            "workspace_bytes": limits.workspace_bytes or 0,
            "workspace_files": limits.workspace_files,
            "tmp_bytes": limits.tmp_bytes,
            "shared_memory_bytes": shared_memory_bytes(limits),
            "system_links": [(path.encode(), target.encode()) for path, target in system_links()],
            "system_paths": [path.encode() for path in (*system_folders(), *system_settings())],
            "files": {path.encode(): content for path, content in account_files(self.uid).items()},
        }

    def remedy(self, said: str) -> str:
        if "mount_setattr" in said and "not implemented" in said:
            return "Linux 5.12 or newer is needed; --sandbox bwrap works on older ones."
        if "mount proc" in said:
            return (
                "This container hides parts of /proc, which keeps sandboxes in it from having their own: "
                "docker run --security-opt systempaths=unconfined."
            )
        if "workspace" in said:
            return f"The folder of the workspaces must be reachable for user {self.uid}: set TMPDIR to one that is."
        if "No space left" in said:
            return "This user has all the namespaces it may have: raise the sysctls user.max_*_namespaces."
        if "denied" not in said and "not permitted" not in said:
            return "Linux did not let the sandbox be put together; --sandbox bwrap may work here."
        return (
            "This machine does not let an ordinary user make namespaces. Allow it: "
            "sysctl kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0; "
            "in a container, docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
            "--security-opt systempaths=unconfined."
        )

    def identity(self) -> dict[str, str]:
        return {**super().identity(), "weak": self.cgroups.unlimited() or "nothing"}


class NamespacesProvider(SupervisedProvider):
    """Leases sandboxes in namespaces: the default on Linux where there is no bubblewrap."""

    def __init__(self, *, workspace_root: Path | None = None) -> None:
        """Make a provider; nothing is started.

        Args:
            workspace_root: Folder for the workspaces, which the sandboxes' user can reach; None is the system's for
                temporary files.
        """
        super().__init__(NamespacesLauncher(), workspace_root=workspace_root)
