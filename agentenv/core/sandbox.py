"""The contract of a sandbox: where a policy's commands run, and how they are made to end."""

from __future__ import annotations

import errno
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentenv.core.blobs import BlobSink
from agentenv.core.deadline import Deadline
from agentenv.core.lifetime import AsyncResource
from agentenv.records.messages import Spill


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """Limits of one sandbox; each is enforced by the kernel or the supervisor, none by good will."""

    memory_bytes: int = 2 << 30
    """Address space of one process."""
    processes: int = 128
    open_files: int = 256
    file_bytes: int = 1 << 30
    """Size of one file."""
    tmp_bytes: int = 64 << 20
    output_bytes: int = 1 << 20
    """Bytes of one command's stdout, and again of its stderr, that are kept in memory (half head, half tail)."""
    cpu_s: float = 600.0
    """CPU seconds of one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLimit:
    """The most that one snapshot may store. A policy writes what it likes, and sparse files cost it nothing."""

    files: int = 10_000
    total_bytes: int = 256 << 20

    def check(self, files: int, total_bytes: int) -> None:
        """Refuse what is beyond it.

        Raises:
            OSError: ``EFBIG``.
        """
        if files > self.files or total_bytes > self.total_bytes:
            raise OSError(
                errno.EFBIG, f"the workspace has more than {self.files:,} files or {self.total_bytes:,} bytes"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What to lease."""

    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Workspace at the start: relative path to content."""
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Run id, episode id: who owns it, for whoever has to clean up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One stream of one command."""

    head: bytes
    """The first bytes."""
    tail: bytes = b""
    """The last bytes; empty if ``head`` is all there was."""
    total_bytes: int = 0
    """Bytes the command wrote."""
    spill: Spill | None = None
    """The whole stream, where a blob sink was given and something was cut."""

    @property
    def dropped_bytes(self) -> int:
        """Bytes in neither head nor tail."""
        return self.total_bytes - len(self.head) - len(self.tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What came of one command."""

    exit_code: int
    """As a shell counts: 128 + n when killed by signal n, 126/127 when it could not be started."""
    timed_out: bool
    """Whether its ``timeout_s`` fired; output up to then is kept."""
    stdout: Output
    stderr: Output
    duration_s: float
    killed: int
    """Processes the command left behind, killed at its end."""


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
    """A kept process ended. The text says how, with the end of its stderr."""


class Sandbox(AsyncResource):
    """One leased sandbox with a workspace that persists between commands.

    Law 12: whatever commands do, each ends within its timeout plus a second of grace, and when the sandbox is closed
    nothing it started is alive.
    """

    @abstractmethod
    async def run(
        self,
        command: Sequence[str] | str,
        *,
        deadline: Deadline,
        timeout_s: float,
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        blobs: BlobSink | None = None,
    ) -> Execution:
        """Run one command and everything it starts, to the end of all of it.

        Args:
            command: Arguments of a program, or a line for ``/bin/sh -c``.
            deadline: When the caller stops waiting for the sandbox itself.
            timeout_s: Seconds until the command is stopped (SIGTERM to its group, then SIGKILL to all of it).
            cwd: Relative to the workspace.
            env: Added to the sandbox's minimal environment; nothing of the harness's is passed on.
            stdin: Fed to the command, then closed.
            blobs: Where a stream longer than ``limits.output_bytes`` is kept whole; None drops the middle.

        Raises:
            SandboxFault: The sandbox is gone or answers nonsense. Never shown to the policy as the command's output.
            DeadlineReached: ``deadline`` fired; the sandbox is closed, for its state is unknown.
        """

    @abstractmethod
    async def start(self, command: Sequence[str], *, deadline: Deadline) -> SandboxProcess:
        """Start a kept process; it is killed with the sandbox, or by its own ``aclose``.

        Raises:
            SandboxFault, DeadlineReached: As `run`.
        """

    @abstractmethod
    async def read(self, path: str, *, max_bytes: int = 1 << 20) -> bytes:
        """Read at most ``max_bytes`` of a regular file of the workspace, resolved beneath it in one step.

        Raises:
            FileNotFoundError: No such file.
            PermissionError: The path leads out of the workspace (``..``, absolute, a link), or may not be read.
            IsADirectoryError: It is a directory.
            OSError: It is no regular file (FIFO, socket, device).
        """

    @abstractmethod
    async def write(self, path: str, content: bytes) -> None:
        """Write a file of the workspace, making its folders.

        Raises:
            PermissionError: The path leads out of the workspace, or may not be written.
            IsADirectoryError: It is a directory.
            OSError: Size limit, full disk, name too long.
        """

    @abstractmethod
    async def list(self, path: str = ".") -> list[FileEntry]:
        """List a folder of the workspace by name, undecodable bytes of names as lone surrogates (PEP 383).

        Raises:
            FileNotFoundError, NotADirectoryError, PermissionError: As the names say.
        """

    @abstractmethod
    async def snapshot(self, blobs: BlobSink, *, limit: SnapshotLimit | None = None) -> dict[str, Spill]:
        """Store every regular file of the workspace by content hash: relative path to blob.

        Raises:
            OSError: ``EFBIG``: there is more than ``limit`` allows; some of it may have been stored.
        """

    @abstractmethod
    async def stop_processes(self) -> None:
        """Kill every process of the policy; the workspace stays. Grading comes after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One entry of a folder."""

    name: str
    kind: str
    """``file``, ``dir``, ``link``, ``other``."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderStatus:
    """Whether a provider works here, proven by starting one sandbox."""

    name: str
    works: bool
    detail: str
    """Version and figures if it works; else what is missing and the remedy."""


class SandboxProvider(AsyncResource):
    """Leases sandboxes of one kind."""

    name: str

    @abstractmethod
    async def probe(self) -> ProviderStatus:
        """Start one sandbox, run one command, close it; never raises for a missing part."""

    @abstractmethod
    async def lease(self, spec: SandboxSpec, deadline: Deadline) -> Sandbox:
        """Start a sandbox; the caller closes it.

        Raises:
            SandboxFault: It could not be started.
            DeadlineReached: ``deadline`` fired first; nothing is left behind.
        """

    @abstractmethod
    def identity(self) -> dict[str, str]:
        """What goes into the manifest: kind, version, limits of the kind, what is weak about it."""
