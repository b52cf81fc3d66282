"""The contract of a sandbox: where a policy's commands run, and how they are made to end."""

from __future__ import annotations

import errno
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentenv.core.blobs import BlobSink, BlobSource
from agentenv.core.deadline import Deadline
from agentenv.core.lifetime import AsyncResource
from agentenv.core.sandbox_process import BackgroundProcess, SandboxProcess
from agentenv.records.axes import NetworkAccess
from agentenv.records.messages import Spill


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """Limits of one sandbox; each is enforced by the kernel or the supervisor, none by good will."""

    memory_bytes: int = 2 << 30
    """Address space of one process."""
    total_memory_bytes: int | None = 4 << 30
    """Memory of all processes together, where a cgroup can enforce it; elsewhere ``SandboxProvider.identity()["weak"]``
    says that it is not. None: no limit."""
    processes: int = 128
    open_files: int = 256
    file_bytes: int = 1 << 30
    """Size of one file."""
    tmp_bytes: int = 64 << 20
    workspace_bytes: int | None = 256 << 20
    """Size of the workspace, which then is a file system in memory that lives and dies with the sandbox. None: a folder
    on this machine's disk, limited by ``file_bytes`` alone."""
    workspace_files: int = 100_000
    """Files, folders and links in a workspace of limited size."""
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
    network: tuple[str, ...] = ()
    """Hosts that commands reach, through a proxy of the harness: ``example.org``, ``*.example.org`` (every name below
    it), either with ``:PORT`` (else 80 and 443). Empty: no network at all."""
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
            DeadlineReached: ``deadline`` fired. As when the call is cancelled, the command is killed with what it
                started, and the sandbox goes on: that a command takes long is not the sandbox's fault.
        """

    @abstractmethod
    async def start(self, command: Sequence[str], *, deadline: Deadline) -> SandboxProcess:
        """Start a kept process; it is killed with the sandbox, or by its own ``aclose``.

        Raises:
            SandboxFault, DeadlineReached: As `run`.
        """

    @abstractmethod
    async def spawn(
        self,
        command: Sequence[str] | str,
        *,
        deadline: Deadline,
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
    ) -> BackgroundProcess:
        """Start a background process; it is killed with the sandbox, by `stop_processes`, or by its own ``aclose``.

        A command that cannot be started is a process that ended with 126 or 127 and says why on its stderr. Arguments
        are those of `run`.

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
    async def restore(self, files: Mapping[str, Spill], blobs: BlobSource) -> None:
        """Make the workspace exactly these files: take a snapshot back. Modes, links and empty folders are not kept.

        Stop what runs before, or it may write meanwhile.

        Args:
            files: As `snapshot` gave them.
            blobs: Where their content is.

        Raises:
            PermissionError, OSError: A file cannot be written, as `write`; the workspace then has some of them.
            DamagedJournal: A blob is missing or damaged; the workspace then has some of the files.
            SandboxFault: The sandbox is gone.
        """

    @abstractmethod
    async def stop_processes(self) -> None:
        """Kill every process of the policy; the workspace stays. Grading comes after it.

        Raises:
            SandboxFault: The sandbox is gone.
        """

    @abstractmethod
    async def relabel(self, labels: Mapping[str, str]) -> None:
        """Say to whom it belongs from now on, in place of ``SandboxSpec.labels``: for one that was started in advance.

        Raises:
            SandboxFault: The sandbox is gone, or the labels cannot be stored.
        """

    @abstractmethod
    async def network_state(self) -> NetworkState:
        """Measure from inside what commands can reach. No packet leaves this machine for it.

        Raises:
            SandboxFault: The sandbox is gone, or the measurement was prevented.
        """

    @abstractmethod
    async def usage(self) -> ResourceUse:
        """Say what the sandbox has used and uses.

        Raises:
            SandboxFault: The sandbox is gone.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One entry of a folder."""

    name: str
    kind: str
    """``file``, ``dir``, ``link``, ``other``."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkState:
    """What was measured from inside one sandbox."""

    access: NetworkAccess
    interfaces: tuple[str, ...]
    """Beside ``lo``."""
    detail: str
    """What was tried from inside, and what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUse:
    """What one sandbox has used and uses."""

    cpu_s: float
    """Of all its processes so far, ended ones as far as somebody waited for them."""
    memory_bytes: int | None
    """Now, of all processes together: by the cgroup where there is one, else the sum of their resident memory, in
    which shared pages count once for each. None: it cannot be seen here."""
    peak_memory_bytes: int | None
    """None: nobody counts it here."""
    processes: int
    """Alive now, without the supervisor."""
    workspace_bytes: int
    """Space the workspace takes up."""
    workspace_files: int
    """Files, folders and links in the workspace."""


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
            ConfigError: ``spec.network`` has what is no host.
            SandboxFault: It could not be started, or the provider is closed (permanent).
            DeadlineReached: ``deadline`` fired first; nothing is left behind.
        """

    @abstractmethod
    def identity(self) -> dict[str, str]:
        """What goes into the manifest: ``kind``, ``version``, ``network``, and in ``weak`` what it does not enforce."""
