"""Sandboxes that no other program makes: a warden (`agentenv.sandboxes.warden`) is started, and confines a child."""

from __future__ import annotations

import asyncio
import marshal
import os
import platform
from abc import abstractmethod
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from agentenv.core.sandbox import SandboxSpec
from agentenv.sandboxes.bundle import WARDEN_ENTRY, warden_sha256, warden_zip
from agentenv.sandboxes.cgroups import Cgroup, Cgroups, find_cgroups
from agentenv.sandboxes.host_system import UNPRIVILEGED_UID, interpreter, system_name
from agentenv.sandboxes.launching import Launch, Launcher
from agentenv.sandboxes.process_container import ProcessContainer, launched, memory_file, open_this_process
from agentenv.sandboxes.warden.kernel import landlock_version
from agentenv.sandboxes.workspaces import marked

if TYPE_CHECKING:
    from agentenv.sandboxes.warden.settings import Settings


class WardenLauncher(Launcher):
    """What the kinds have in common."""

    user_of_root: ClassVar[int] = UNPRIVILEGED_UID
    """As whom sandboxes of a harness that is root run."""

    def __init__(self) -> None:
        self.uid = os.geteuid() or self.user_of_root

    @cached_property
    def cgroups(self) -> Cgroups:
        """Where the sandboxes' groups are made. Blocks the first time."""
        return find_cgroups()

    @abstractmethod
    def settings(self, workspace: Path | None, spec: SandboxSpec, lease: Path) -> Settings:
        """Say what the warden is to do; descriptors and groups are added. Called before anything is started.

        Raises:
            OSError, SandboxFault: As `launch`.
        """

    def described(self, launch: Launch, spec: SandboxSpec, lease: Path) -> Launch:
        """Add what is different from lease to lease."""
        del spec, lease
        return launch

    async def launch(self, workspace: Path | None, spec: SandboxSpec, *, lease: Path) -> Launch:
        await asyncio.to_thread(self._prepare)  # once; later calls find it
        settings = self.settings(workspace, spec, lease)
        launch = await launched(
            lambda stream: self._start(settings, self.cgroups.make(lease.name, spec.limits), stream, lease)
        )
        return self.described(launch, spec, lease)

    def _prepare(self) -> None:
        warden_zip(interpreter())
        _ = self.cgroups

    def _start(self, settings: Settings, group: Cgroup | None, stream: int, lease: Path) -> ProcessContainer:
        def command(told: int, given: list[int]) -> list[str]:
            whole: dict[str, Any] = {
                **settings,
                "told": told,
                "harness": open_this_process(given),
                "joins": [] if group is None else [os.fsencode(path) for path in group.joins],
            }
            file = memory_file(marshal.dumps(whole, 2), given)
            entry = WARDEN_ENTRY.format(zip=f"/proc/self/fd/{memory_file(warden_zip(interpreter()), given)}")
            return [interpreter(), "-I", "-S", "-B", "-c", entry, str(file), *marked(lease)]

        return ProcessContainer.start(command, stream=stream, group=group)

    def sweep(self) -> list[Path]:
        return self.cgroups.sweep()

    def identity(self) -> dict[str, str]:
        groups = self.cgroups
        return {
            "version": f"Linux {platform.release()}, Landlock {landlock_version()}",
            "user": str(self.uid),
            "root": system_name(),
            "warden": warden_sha256(),
            "cgroups": groups.missing or f"version {groups.version}",
        }


def no_settings() -> Settings:
    """Give settings that ask for nothing, to be filled in."""
    return {
        "kind": "none",
        "user": 0,
        "joins": [],
        "told": -1,
        "harness": -1,
        "filter": b"",
        "processes": 0,
        "workspace": b"",
        "workspace_bytes": 0,
        "workspace_files": 0,
        "tmp_bytes": 0,
        "shared_memory_bytes": 0,
        "system_links": [],
        "system_paths": [],
        "writable": [],
        "files": {},
    }
