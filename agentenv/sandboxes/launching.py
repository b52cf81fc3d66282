"""What a launcher is: the way to start one supervisor in one kind of sandbox, and to end it for certain."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from agentenv.core.sandbox import SandboxLimits


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A started supervisor, not yet spoken to."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    container: Container


class Launcher(ABC):
    """Starts supervisors of one kind. Stateless between launches."""

    name: str
    """As in ``--sandbox NAME``."""
    uid: int
    """User on this machine as whom sandboxes run; owns the workspace."""
    workspace_inside: str
    """Where the workspace lies in the sandbox."""
    environment: tuple[tuple[str, str], ...]
    """Whole environment of a command, before what the caller adds."""

    @abstractmethod
    async def launch(self, workspace: Path, limits: SandboxLimits) -> Launch:
        """Start one; it may still fail before it answers, which its container explains.

        Raises:
            SandboxFault: Something it needs is missing; permanent, with the remedy.
        """

    @abstractmethod
    def remedy(self, said: str) -> str:
        """Say what to do about a start that failed with these last words."""

    @abstractmethod
    def identity(self) -> dict[str, str]:
        """What the kind of sandbox is, for the manifest."""
