"""A sandbox of a pool: the inner one, with a slot to give back when it is closed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from agentenv.core.blobs import BlobSink, BlobSource
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Execution, FileEntry, NetworkState, ResourceUse, Sandbox, SnapshotLimit
from agentenv.core.sandbox_process import BackgroundProcess, SandboxProcess
from agentenv.records.messages import Spill


class PooledSandbox(Sandbox):
    """Does what the inner one does."""

    def __init__(self, inner: Sandbox, release: Callable[[Sandbox], Awaitable[None]]) -> None:
        self._inner = inner
        self._release = release

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
        return await self._inner.run(
            command, deadline=deadline, timeout_s=timeout_s, cwd=cwd, env=env, stdin=stdin, blobs=blobs
        )

    async def start(self, command: Sequence[str], *, deadline: Deadline) -> SandboxProcess:
        return await self._inner.start(command, deadline=deadline)

    async def spawn(
        self,
        command: Sequence[str] | str,
        *,
        deadline: Deadline,
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
    ) -> BackgroundProcess:
        return await self._inner.spawn(command, deadline=deadline, cwd=cwd, env=env)

    async def read(self, path: str, *, max_bytes: int = 1 << 20) -> bytes:
        return await self._inner.read(path, max_bytes=max_bytes)

    async def write(self, path: str, content: bytes) -> None:
        await self._inner.write(path, content)

    async def list(self, path: str = ".") -> list[FileEntry]:
        return await self._inner.list(path)

    async def snapshot(self, blobs: BlobSink, *, limit: SnapshotLimit | None = None) -> dict[str, Spill]:
        return await self._inner.snapshot(blobs, limit=limit)

    async def restore(self, files: Mapping[str, Spill], blobs: BlobSource) -> None:
        await self._inner.restore(files, blobs)

    async def stop_processes(self) -> None:
        await self._inner.stop_processes()

    async def network_state(self) -> NetworkState:
        return await self._inner.network_state()

    async def usage(self) -> ResourceUse:
        return await self._inner.usage()

    async def relabel(self, labels: Mapping[str, str]) -> None:
        await self._inner.relabel(labels)

    async def aclose(self) -> None:
        await self._release(self._inner)
