"""Sandboxes made by a Docker Engine: one container each, without network, capabilities or a root that can be written.

Traps this file is written around, each found by trying (and each a test):

- ``docker exec`` has no kill, and costs twenty times as much as a command through a supervisor: the supervisor is
  PID 1, spoken to over the attached streams, and nothing is ever executed beside it.
- An engine's ``put_archive`` fails on a read-only root, and loses the files where a tmpfs lies: the supervisor comes in
  over stdin, so that the engine may also be another machine's.
- A limit on a user's processes (RLIMIT_NPROC) counts those of all containers that run as the same user: the control
  group counts them instead.
- The engine's own filter of system calls depends on its age (20.10 allows io_uring): ours comes on top, from inside.
- The engine's default is to store all that a container writes to stdout, which here is everything: nothing is logged.
- Several removals by force at once may leave a shim behind: a container is killed, and the engine removes it at its
  end. A container whose harness is dead reads the end of stdin and ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from agentenv.core.lifetime import finish
from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.errors import SandboxFault
from agentenv.sandboxes.bundle import supervisor_zip
from agentenv.sandboxes.cgroups import Cgroup, group_of
from agentenv.sandboxes.docker_config import SAME_KERNEL, ContainerKind, preamble
from agentenv.sandboxes.docker_engine import Engine, EngineFacts, Image, missing_image, remedy
from agentenv.sandboxes.docker_image import (
    COMPILING,
    HOST,
    compiled_supervisor,
    host_image,
)
from agentenv.sandboxes.docker_leftovers import end_leftovers
from agentenv.sandboxes.docker_stream import Stream, attach
from agentenv.sandboxes.host_system import UNPRIVILEGED_UID, interpreter, system_name
from agentenv.sandboxes.launching import Container, Launch, Launcher, MemoryUse
from agentenv.sandboxes.own_root import ENVIRONMENT, WORKSPACE
from agentenv.sandboxes.seccomp import build_filter
from agentenv.sandboxes.supervised_provider import SupervisedProvider

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)

_AT_ONCE = 4
"""Calls to the engine. It is not quicker with more, and containers that start and end by the dozen trip it up."""
_CLEANUP_S = 30.0
_COMPILER_LIMITS = SandboxLimits(total_memory_bytes=512 << 20, workspace_bytes=1 << 20)
_UNCOUNTED = 1 << 30
"""Processes that the supervisor is to allow one user; as good as no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """What is known once, about an engine and an image."""

    facts: EngineFacts
    image: Image
    mounts: tuple[dict[str, Any], ...]
    preamble: bytes
    """As `preamble` makes it."""


class DockerLauncher(Launcher):
    """See the module. Between launches it keeps its connections to the engine, and what it knows of the image."""

    name = "docker"
    workspace_inside = WORKSPACE
    environment = ENVIRONMENT

    def __init__(self, *, image: str = HOST, runtime: str | None = None, url: str | None = None) -> None:
        self.uid = os.geteuid() or UNPRIVILEGED_UID
        self.engine = Engine(url)
        self._image = image
        self._runtime = runtime
        self._threads = _threads()
        self._ready: _Ready | None = None
        self._preparing = asyncio.Lock()

    # Starting.

    async def launch(self, workspace: Path | None, spec: SandboxSpec, *, lease: Path) -> Launch:
        ready = await self._prepared(lease)
        config = self._kind(ready.image, ready.mounts).config(spec.limits, workspace)
        config["Labels"] |= {f"agentenv.label.{key}": value for key, value in spec.labels.items()}
        try:
            stream, container = await self._started(lease.name, config, ready.facts.api)
        except SandboxFault:
            self._ready = None  # the image may be gone, or the engine another one: the next start looks again
            raise
        stream.writer.write(ready.preamble)
        return Launch(
            reader=stream.reader,
            writer=stream.writer,
            container=container,
            environment=_of_image(ready.image.env),
            limits=replace(spec.limits, processes=_UNCOUNTED) if self._counts(ready.facts) else None,
        )

    def _counts(self, facts: EngineFacts) -> bool:
        """Whether the control group counts just the container's own processes."""
        return facts.limits_processes and self._runtime in SAME_KERNEL

    def _kind(self, image: Image, mounts: tuple[dict[str, Any], ...]) -> ContainerKind:
        inside = self.workspace_inside
        return ContainerKind(image=image, mounts=mounts, uid=self.uid, workspace_inside=inside, runtime=self._runtime)

    async def _started(self, name: str, config: dict[str, Any], api: str) -> tuple[Stream, DockerContainer]:
        """Create, attach, start; of what fails or is cancelled on the way nothing is left."""
        container = DockerContainer(self, name)
        stream: Stream | None = None
        try:
            await container.step(self.engine.create, name, config)
            stream = await attach(self.engine.address, api, name)
            container.stream = stream
            container.group = await container.step(self._start, name)
        except BaseException:
            if stream is not None:
                stream.writer.transport.abort()
            container.kill()
            if not await finish(container.gone(), _CLEANUP_S):
                _log.warning("removing the container %s takes longer than %.0f s", name, _CLEANUP_S)
            raise
        return stream, container

    def _start(self, name: str) -> Cgroup | None:
        """Start a container; give the group that counts for it, where it is on this machine. Blocking."""
        started = self.engine.start(name)
        group = group_of(started.pid)
        # Another machine's process of that number is somebody else here.
        return group if group is not None and started.id in str(group.folders[0]) else None

    # What is known once.

    async def _prepared(self, lease: Path) -> _Ready:
        async with self._preparing:
            if self._ready is None:
                facts = await self.call(self.engine.facts)
                machine_filter = build_filter(facts.machine)
                image, mounts, supervisor = await (
                    self._host() if self._image == HOST else self._named(self._image, lease, facts.api)
                )
                content = preamble(machine_filter, supervisor)
                self._ready = _Ready(facts=facts, image=image, mounts=mounts, preamble=content)
            return self._ready

    async def _host(self) -> tuple[Image, tuple[dict[str, Any], ...], bytes]:
        if self.engine.address.path is None:
            raise SandboxFault.permanent(
                f"the Docker Engine at {self.engine.url} is another machine's, whose /usr is not ours. "
                "Remedy: name an image that has Python 3.9 or newer"
            )
        made = host_image(self.uid)
        image = await self.call(self.engine.image, made.name)
        if image is None:
            await self.call(_imported, self.engine, made.archive, made.repository, made.tag)
            image = await self.call(self.engine.image, made.name)
        if image is None:
            raise SandboxFault(f"the Docker Engine does not have the image {made.name} that was just imported")
        return image, made.mounts, await self.call(supervisor_zip, interpreter())

    async def _named(self, name: str, lease: Path, api: str) -> tuple[Image, tuple[dict[str, Any], ...], bytes]:
        image = await self.call(self.engine.image, name)
        if image is None:
            raise SandboxFault.permanent(missing_image(name))
        config = self._kind(image, ()).config(_COMPILER_LIMITS, None)
        config["Entrypoint"] = list(COMPILING)
        stream, container = await self._started(f"{lease.name}.compiler", config, api)
        try:
            return image, (), await compiled_supervisor(stream, name)
        finally:
            stream.writer.transport.abort()
            container.kill()
            await finish(container.gone(), _CLEANUP_S)

    # The rest of the contract.

    def remedy(self, said: str) -> str:
        return remedy(said)

    def sweep(self) -> list[Path]:
        try:
            self.engine.facts()
        except SandboxFault:
            return []  # the start that is under way says why
        try:
            return list(map(Path, end_leftovers(self.engine)))
        except SandboxFault as error:
            _log.warning("containers of dead processes could not be removed: %s", error)
            return []

    def identity(self) -> dict[str, str]:
        facts = self.engine.facts()
        return {
            "version": facts.version,
            "user": str(self.uid),
            **self._about_image(),
            "runtime": self._runtime or "the engine's default",
            "weak": _weak(facts, counts_processes=self._counts(facts)),
        }

    def _about_image(self) -> dict[str, str]:
        if self._image == HOST:
            return {"image": host_image(self.uid).name, "root": system_name()}
        image = self.engine.image(self._image)
        if image is None:
            raise SandboxFault.permanent(missing_image(self._image))
        return {"image": self._image, "image_id": image.id}

    def call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Make a blocking call in one of a few threads."""
        return asyncio.get_running_loop().run_in_executor(self._threads, lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Close the connections; calls that are under way go on to their end."""
        self._threads.shutdown(wait=False)
        self._threads = _threads()
        self.engine.close()


class DockerContainer(Container):
    """One container, by a name that is known before it exists."""

    def __init__(self, launcher: DockerLauncher, name: str) -> None:
        self.stream: Stream | None = None
        self.group: Cgroup | None = None
        self._launcher = launcher
        self._name = name
        self._step: asyncio.Future[Any] | None = None
        self._ending: asyncio.Task[None] | None = None

    async def step(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call of its start. One that is cancelled goes on in its thread, and is waited for before the end."""
        call = self._launcher.call(work, *args, **kwargs)
        self._step = call
        return await asyncio.shield(call)

    def kill(self) -> None:
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())

    async def _end(self) -> None:
        if self._step is not None:
            await asyncio.wait([self._step])
            self._step.exception()  # whoever waited for it has been told, or is gone
        try:
            await self._launcher.call(self._launcher.engine.end, self._name)
        except SandboxFault as error:
            # The episode is over and its result stands; the next start tries again.
            _log.warning("%s", error)

    async def gone(self) -> None:
        if self._ending is None and self.stream is not None:
            await asyncio.wait([self.stream.attached.ended])
        self.kill()
        assert self._ending is not None, "killing sets it"
        await asyncio.wait([self._ending])

    def last_words(self) -> str:
        return "" if self.stream is None else self.stream.attached.words.decode(errors="replace").strip()

    def memory(self) -> MemoryUse | None:
        return None if self.group is None else self.group.memory()


class DockerProvider(SupervisedProvider):
    """Leases containers."""

    def __init__(
        self,
        *,
        image: str = HOST,
        runtime: str | None = None,
        url: str | None = None,
        workspace_root: Path | None = None,
    ) -> None:
        """Make a provider; nothing is started or connected.

        Args:
            image: Name or id of an image the engine has, with Python 3.9 or newer as ``python3`` on its PATH. ``host``
                is one made on the spot, of this machine's ``/usr``.
            runtime: One that the engine knows (``runsc``); None is its default.
            url: Where the engine listens; None is what ``DOCKER_HOST`` says, else the system's socket.
            workspace_root: Folder for the leases; None is the system's for temporary files.
        """
        self._docker = DockerLauncher(image=image, runtime=runtime, url=url)
        super().__init__(self._docker, workspace_root=workspace_root)

    async def aclose(self) -> None:
        try:
            await super().aclose()
        finally:
            self._docker.close()


def _threads() -> ThreadPoolExecutor:
    """Make the threads of one launcher; they start when they are needed."""
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="agentenv-docker")


def _imported(engine: Engine, archive: bytes, repository: str, tag: str) -> None:
    engine.import_image(archive, repository=repository, tag=tag)


def _of_image(env: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Give what an image sets for its programs, without what is the sandbox's to say."""
    return tuple((name, value) for name, value in env if name not in {"HOME", "TMPDIR", "USER"})


def _weak(facts: EngineFacts, *, counts_processes: bool) -> str:
    """Say what this engine, by its own word, does not limit."""
    missing = [
        what
        for limited, what in (
            (facts.limits_memory, "the memory of all processes together"),
            (facts.limits_swap, "how much of it is swapped out"),
            (counts_processes, "the exact number of processes"),
        )
        if not limited
    ]
    return f"the engine or its runtime does not limit {', nor '.join(missing)}" if missing else ""
