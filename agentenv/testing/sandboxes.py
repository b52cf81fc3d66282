"""A working fake of a sandbox: files in a dictionary, commands by script. Passes the contract suite."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Mapping, Sequence

from agentenv.core.blobs import BlobSink, BlobSource
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.hosts import parse_rules
from agentenv.core.sandbox import (
    Execution,
    FileEntry,
    NetworkAccess,
    NetworkState,
    Output,
    ProviderStatus,
    ResourceUse,
    Sandbox,
    SandboxLimits,
    SandboxProvider,
    SandboxSpec,
    SnapshotLimit,
)
from agentenv.core.sandbox_process import BackgroundProcess, ProcessDied, SandboxProcess
from agentenv.errors import SandboxFault
from agentenv.records.messages import Spill
from agentenv.sandboxes.supervisor.capture import HeadTail
from agentenv.testing.background_processes import InMemoryBackground
from agentenv.testing.programs import (
    Answers,
    Commands,
    Invocation,
    Processes,
    Reaction,
    Scripted,
    resolve,
    small_processes,
    small_programs,
)


class InMemorySandbox(Sandbox):
    """One lease of `InMemoryProvider`."""

    def __init__(
        self,
        *,
        files: dict[str, bytes],
        limits: SandboxLimits,
        labels: Mapping[str, str] | None = None,
        network: tuple[str, ...] = (),
        commands: Commands = small_programs,
        processes: Processes = small_processes,
    ) -> None:
        self.files = files
        self.commands_run: list[tuple[str, ...]] = []
        """Every command, in order."""
        self.labels = dict(labels or {})
        """Whose it is."""
        self.closed = False
        self._limits = limits
        self._network = network
        self._commands = commands
        self._processes = processes
        self._kept: list[InMemoryProcess] = []
        self._backgrounds: list[InMemoryBackground] = []

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
        self._require_open()
        argv = _argv(command)
        self.commands_run.append(argv)
        result = self._play(argv, cwd, env or {}, stdin)
        if deadline.passed or (result.hangs and deadline.remaining_s < timeout_s):
            raise DeadlineReached(f"the deadline of {deadline.name} fired", deadline)
        return Execution(
            exit_code=143 if result.hangs else result.exit_code,
            timed_out=result.hangs,
            stdout=self._output(result.stdout, blobs),
            stderr=self._output(result.stderr, blobs),
            duration_s=timeout_s if result.hangs else 0.0,
            killed=0,
        )

    def _play(self, argv: tuple[str, ...], cwd: str, env: Mapping[str, str], stdin: bytes) -> Scripted:
        try:
            folder = resolve(cwd)
            self._require_folder(folder)
        except OSError as error:
            return Scripted(exit_code=126, stderr=f"working folder: {error.strerror}\n".encode())
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", **env}  # noqa: S108 - a name in a fake
        invocation = Invocation(argv=argv, cwd=folder, env=environment, stdin=stdin, files=self.files)
        result = self._commands(invocation)
        return result or Scripted(exit_code=127, stderr=f"{argv[0]}: command not found\n".encode("utf-8", "replace"))

    def _output(self, content: bytes, blobs: BlobSink | None) -> Output:
        kept = HeadTail(self._limits.output_bytes)
        kept.add(content)
        head, tail = kept.parts()
        spill = blobs.put(content) if blobs is not None and kept.overflowed else None
        return Output(head=head, tail=tail, total_bytes=kept.total, spill=spill)

    async def start(self, command: Sequence[str], *, deadline: Deadline) -> SandboxProcess:
        self._require_open()
        if deadline.passed:
            raise DeadlineReached(f"the deadline of {deadline.name} fired", deadline)
        process = InMemoryProcess(self, self._processes(tuple(command)))
        self._kept.append(process)
        return process

    async def spawn(
        self,
        command: Sequence[str] | str,
        *,
        deadline: Deadline,
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
    ) -> BackgroundProcess:
        self._require_open()
        argv = _argv(command)
        self.commands_run.append(argv)
        if deadline.passed:
            raise DeadlineReached(f"the deadline of {deadline.name} fired", deadline)

        process = InMemoryBackground(
            None if argv == ("cat",) else self._play(argv, cwd, env or {}, b""), lost=lambda: self.closed
        )
        self._backgrounds.append(process)
        return process

    async def read(self, path: str, *, max_bytes: int = 1 << 20) -> bytes:
        self._require_open()
        place = resolve(path)
        if self._is_folder(place):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._require_folder(posixpath.dirname(place) or ".")
        if place not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.files[place][:max_bytes]

    async def write(self, path: str, content: bytes) -> None:
        self._require_open()
        place = resolve(path)
        if self._is_folder(place):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if any(place.startswith(f"{file}/") for file in self.files):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if len(content) > self._limits.file_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        self.files[place] = content

    async def list(self, path: str = ".") -> list[FileEntry]:
        self._require_open()
        folder = resolve(path)
        self._require_folder(folder)
        start = "" if folder == "." else f"{folder}/"
        entries: dict[str, FileEntry] = {}
        for file, content in self.files.items():
            if file.startswith(start):
                name, *below = file[len(start) :].split("/")
                kind, size = ("dir", 0) if below else ("file", len(content))
                entries[name] = FileEntry(name=name, kind=kind, size_bytes=size)
        return [entries[name] for name in sorted(entries, key=lambda name: name.encode("utf-8", "surrogateescape"))]

    async def snapshot(self, blobs: BlobSink, *, limit: SnapshotLimit | None = None) -> dict[str, Spill]:
        self._require_open()
        if limit is not None:
            limit.check(len(self.files), sum(map(len, self.files.values())))
        return {path: blobs.put(content) for path, content in self.files.items()}

    async def restore(self, files: Mapping[str, Spill], blobs: BlobSource) -> None:
        self._require_open()
        self.files.clear()
        for path, spill in files.items():
            await self.write(path, blobs.get(spill.sha256))

    async def stop_processes(self) -> None:
        self._require_open()
        for process in self._kept:
            await process.aclose()
        for background in self._backgrounds:
            background.kill()

    async def relabel(self, labels: Mapping[str, str]) -> None:
        self._require_open()
        self.labels = dict(labels)

    async def network_state(self) -> NetworkState:
        self._require_open()
        access = NetworkAccess.ALLOW_LIST if self._network else NetworkAccess.NONE
        return NetworkState(access=access, interfaces=(), detail="a fake: nothing is run that could reach anything")

    async def usage(self) -> ResourceUse:
        self._require_open()
        folders = {folder for path in self.files for folder in _folders_above(path)}
        return ResourceUse(
            cpu_s=0.0,
            memory_bytes=None,
            peak_memory_bytes=None,
            processes=sum(process.alive for process in (*self._kept, *self._backgrounds)),
            workspace_bytes=sum(map(len, self.files.values())),
            workspace_files=len(self.files) + len(folders),
        )

    async def aclose(self) -> None:
        if not self.closed:
            await self.stop_processes()
        self.closed = True

    def _require_open(self) -> None:
        if self.closed:
            raise SandboxFault("the sandbox was closed")

    def _is_folder(self, place: str) -> bool:
        return place == "." or any(file.startswith(f"{place}/") for file in self.files)

    def _require_folder(self, place: str) -> None:
        if self._is_folder(place):
            return
        if any(place == file or place.startswith(f"{file}/") for file in self.files):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)


class InMemoryProcess(SandboxProcess):
    """A kept process of `InMemorySandbox`."""

    def __init__(self, sandbox: InMemorySandbox, answers: Answers | None) -> None:
        self._sandbox = sandbox
        self._answers = answers
        self._end = "" if answers else "exit code 127: command not found"
        """How it ended; empty while it has not."""

    async def request(self, line: bytes, deadline: Deadline) -> bytes:
        if b"\n" in line:
            raise ValueError("a request is one line")
        if self._sandbox.closed:
            raise SandboxFault("the sandbox was closed")
        if self._end or self._answers is None:
            raise ProcessDied(f"the process ended: {self._end}")
        answer = self._answers(line)
        if answer is Reaction.HANGS or deadline.passed:
            self._end = "a request to it was given up"
            raise DeadlineReached(f"the deadline of {deadline.name} fired", deadline)
        if isinstance(answer, Reaction):
            self._end = "exit code 1"
            raise ProcessDied(f"the process ended: {self._end}")
        return answer

    @property
    def alive(self) -> bool:
        return not self._end and not self._sandbox.closed

    async def aclose(self) -> None:
        self._end = self._end or "it was closed"


class InMemoryProvider(SandboxProvider):
    """Leases fakes. What scripts see and change is each lease's own."""

    def __init__(self, *, commands: Commands = small_programs, processes: Processes = small_processes) -> None:
        self.name = "memory"
        self.leased: list[InMemorySandbox] = []
        """Every sandbox it ever leased."""
        self._commands = commands
        self._processes = processes

    async def probe(self) -> ProviderStatus:
        return ProviderStatus(name=self.name, works=True, detail="a fake, in memory")

    async def lease(self, spec: SandboxSpec, deadline: Deadline) -> Sandbox:
        if deadline.passed:
            raise DeadlineReached(f"the deadline of {deadline.name} fired", deadline)
        parse_rules(spec.network)
        sandbox = InMemorySandbox(
            files={},
            limits=spec.limits,
            labels=spec.labels,
            network=spec.network,
            commands=self._commands,
            processes=self._processes,
        )
        for path, content in spec.files.items():
            try:
                await sandbox.write(path, content)
            except OSError as error:
                why = f"the workspace cannot have the file {path!r}: {error.strerror}"
                raise SandboxFault.permanent(why) from error
        self.leased.append(sandbox)
        return sandbox

    def identity(self) -> dict[str, str]:
        return {"kind": self.name, "version": "1", "network": "none", "weak": "a fake: nothing is run"}

    async def aclose(self) -> None:
        for sandbox in self.leased:
            await sandbox.aclose()


def _argv(command: Sequence[str] | str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)


def _folders_above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
