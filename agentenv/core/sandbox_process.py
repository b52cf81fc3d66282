"""The contracts of processes that outlive a command of a sandbox: one that answers lines, and one that streams."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from agentenv.core.deadline import Deadline
from agentenv.core.lifetime import AsyncResource


class SandboxProcess(AsyncResource):
    """A process kept alive beside the commands, spoken to in lines (an interpreter)."""

    @abstractmethod
    async def request(self, line: bytes, deadline: Deadline) -> bytes:
        """Write one line to its stdin and give the next line of its stdout.

        Args:
            line: Without newline characters inside; one is added.
            deadline: When to stop waiting.

        Raises:
            ProcessDied: It ended before it answered; carries what it had written to stderr.
            DeadlineReached: No answer in time; the process is killed, since a late answer could be taken for the
                next one.
            SandboxFault: The sandbox is gone.
        """

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether it can still be asked."""


class ProcessDied(Exception):
    """A kept or background process ended. The text says how, with the end of its stderr where that was kept."""


class BackgroundProcess(AsyncResource):
    """A process that runs beside the commands, its streams carried as they come.

    What is not read is held back: once the pipes inside the sandbox are full, the process waits. Nothing piles up in
    the harness. When its first process ends, what that left behind is killed, as for `Sandbox.run`; output written
    up to then can still be read.
    """

    @abstractmethod
    async def read(self, deadline: Deadline) -> tuple[Literal["out", "err"], bytes] | None:
        """Give the next piece of output, and which stream it is from; None when both have ended, or it was closed.

        Pieces of one stream come in order, and a reader that was cancelled or ran out of time loses none.

        Raises:
            DeadlineReached: Nothing came in time; the process goes on.
            SandboxFault: The sandbox is gone.
        """

    @abstractmethod
    async def write(self, data: bytes, deadline: Deadline) -> None:
        """Write to its stdin, and wait until it (or its pipe) has taken all of it.

        Raises:
            ProcessDied: It ended, or closed its stdin, before it took everything; or we had closed it.
            DeadlineReached: It has not taken all of it in time. Of what it has not, a part may still be handed to it,
                before whatever is written next.
            SandboxFault: The sandbox is gone.
        """

    @abstractmethod
    async def close_stdin(self) -> None:
        """Let it read the end of its input, after all that was written. May be called twice, and after its end.

        Raises:
            SandboxFault: The sandbox is gone.
        """

    @abstractmethod
    async def wait(self, deadline: Deadline) -> int:
        """Wait for its end; give the exit code as a shell counts (126/127: it could not be started).

        One that waits for its output to be read never ends by itself: read until None first.

        Raises:
            DeadlineReached: It has not ended in time; it goes on.
            SandboxFault: The sandbox is gone.
        """

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether it runs, as far as is known here."""

    @abstractmethod
    async def aclose(self) -> None:
        """Kill it and all that it started, and drop what was not read. May be called twice."""
