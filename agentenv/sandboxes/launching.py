"""What a launcher is: the way to start one supervisor in one kind of sandbox, and to end it for certain."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from agentenv.core.sandbox import SandboxLimits, SandboxSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """What a cgroup has counted."""

    now_bytes: int
    peak_bytes: int | None


class Container(ABC):
    """The processes around one supervisor, seen from outside."""

    @abstractmethod
    def kill(self) -> None:
        """Kill all of it; may be called twice, and after it ended. Does not wait."""

    @abstractmethod
    async def gone(self) -> None:
        """Wait until nothing of it is alive, and release what was held to know that. May be called twice."""

    @abstractmethod
    def last_words(self) -> str:
        """Give the end of what launcher and supervisor said for people; empty if nothing."""

    def memory(self) -> MemoryUse | None:
        """Read what its cgroup counts; None where there is none. Does not wait."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A started supervisor, not yet spoken to."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    container: Container
    workspace_inside: str | None = None
    """Where the workspace lies, for a launcher whose sandboxes do not all have it at one place."""
    environment: tuple[tuple[str, str], ...] = ()
    """What this sandbox has beside, or instead of, the launcher's."""
    limits: SandboxLimits | None = None
    """What the supervisor is told, where it cannot enforce all that was asked for; None: all of it."""


class Launcher(ABC):
    """Starts supervisors of one kind. Stateless between launches."""

    name: str
    """As in ``--sandbox NAME``."""
    weak: bool = False
    """Whether much of what a sandbox promises does not hold. Such a kind has to be asked for by name, says so wherever
    it is named, and lists in ``identity()["weak"]`` what does not hold."""
    uid: int
    """User on this machine as whom sandboxes run; owns the workspace."""
    workspace_inside: str
    """Where the workspace lies in the sandbox."""
    environment: tuple[tuple[str, str], ...]
    """Whole environment of a command, before what the caller adds."""

    @abstractmethod
    async def launch(self, workspace: Path | None, spec: SandboxSpec, *, lease: Path) -> Launch:
        """Start one; it may still fail before it answers, which its container explains.

        The supervisor is told its limits by `SupervisedSandbox.set_up`; what it cannot enforce from inside is the
        launcher's: the sizes of ``/tmp`` and of the workspace, ``total_memory_bytes``. The network of the sandbox is
        always empty: the hosts of ``spec.network`` are reached over the supervisor's stream.

        Args:
            workspace: Folder on this machine, owned by `uid`, to be seen at `workspace_inside`. None: make a tmpfs of
                ``spec.limits.workspace_bytes`` and ``spec.limits.workspace_files`` there, owned by the sandbox's user.
            spec: What was leased. Its files are written through the supervisor.
            lease: The lease's folder, whose name says who owns it (`agentenv.sandboxes.workspaces.Owner`). What is
                made on this machine carries that name (command line, cgroup, container), to be found by it when its
                owner is dead. The folder is there until the container is gone.

        Raises:
            SandboxFault: Something it needs is missing; permanent, with the remedy.
        """

    @abstractmethod
    def remedy(self, said: str) -> str:
        """Say what to do about a start that failed with these last words."""

    def sweep(self) -> list[Path]:
        """Remove what dead owners left beside the folders of their leases, and give what was removed. Blocking."""
        return []

    @abstractmethod
    def identity(self) -> dict[str, str]:
        """What the kind of sandbox is, for the manifest: with ``version``, and in ``weak`` what is not enforced."""
