"""Leases of supervised sandboxes, for any launcher: workspaces, starts, probe, and the end of what was left open."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.hosts import HostRule, parse_rules
from agentenv.core.lifetime import finish
from agentenv.core.sandbox import ProviderStatus, Sandbox, SandboxProvider, SandboxSpec
from agentenv.errors import Fault, SandboxFault, ended
from agentenv.sandboxes.bundle import supervisor_sha256
from agentenv.sandboxes.closing import close_all, end_of
from agentenv.sandboxes.connection import Connection
from agentenv.sandboxes.egress import EgressProxy
from agentenv.sandboxes.first_files import NO_ROOM, write_first_files
from agentenv.sandboxes.launching import Container, Launcher
from agentenv.sandboxes.removal import remove_tree
from agentenv.sandboxes.supervised import SupervisedSandbox
from agentenv.sandboxes.workspaces import make_workspace, sweep_workspaces, write_labels

_log = logging.getLogger(__name__)

_PROBE_S = 20.0
_CLEANUP_S = 30.0
_END_S = 60.0
"""For closing a provider: what it waits for has limits of its own, all of them shorter."""


class SupervisedProvider(SandboxProvider):
    """Leases sandboxes of one launcher. One per event loop."""

    def __init__(
        self,
        launcher: Launcher,
        *,
        workspace_root: Path | None = None,
        make_proxy: Callable[[tuple[HostRule, ...]], EgressProxy] = EgressProxy,
    ) -> None:
        """Make a provider; nothing is started.

        Args:
            launcher: Starts the supervisors.
            workspace_root: Folder for the workspaces; None is the system's for temporary files.
            make_proxy: Makes what stands between a sandbox and the hosts of its list.
        """
        self._make_proxy = make_proxy
        self.name = launcher.name
        self._launcher = launcher
        self._root = workspace_root or Path(tempfile.gettempdir())
        self._open: set[Sandbox] = set()
        """Those that are not closed to their end."""
        self._starting: set[asyncio.Future[None]] = set()
        """One for each lease that is under way."""
        self._closed = False
        self._proven = False
        """Whether a sandbox has started here: from then on, one that does not is bad luck and worth another try."""
        self._sweeping: asyncio.Future[list[Path]] | None = None
        self._warned = not launcher.weak
        self._called = f"{launcher.name} (weak)" if launcher.weak else launcher.name
        """In what people read."""

    async def lease(self, spec: SandboxSpec, deadline: Deadline) -> Sandbox:
        self._require_open()
        under_way: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._starting.add(under_way)
        try:
            sandbox = await self._lease(spec, deadline)
            if self._closed:  # meanwhile
                await sandbox.aclose()
            self._require_open()
            return sandbox
        finally:
            self._starting.discard(under_way)
            under_way.set_result(None)

    def _require_open(self) -> None:
        if self._closed:
            raise SandboxFault.permanent(f"the provider of {self._called} sandboxes was closed: it leases no more")

    async def _lease(self, spec: SandboxSpec, deadline: Deadline) -> Sandbox:
        await self._warn()
        self._sweep()
        rules = parse_rules(spec.network)
        steps = AsyncExitStack()
        opened: set[Sandbox] = set()
        steps.callback(self._open.difference_update, opened)  # the last of them
        try:
            async with deadline.enforce():
                sandbox = await self._start(spec, rules, steps)
        except BaseException as error:
            if not await finish(steps.aclose(), _CLEANUP_S):
                _log.warning("%s: clearing up after a failed start takes longer than %.0f s", self._called, _CLEANUP_S)
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise self._no_room(error) from error
            if isinstance(error, OSError) or (isinstance(error, SandboxFault) and error.retryable):
                raise self._not_started(str(error)) from error
            raise
        self._proven = True
        opened.add(sandbox)
        self._open.add(sandbox)
        return sandbox

    async def _warn(self) -> None:
        """Say once what a weak kind does not hold back."""
        if not self._warned:
            self._warned = True
            weak = (await asyncio.to_thread(self._launcher.identity))["weak"]
            _log.warning("sandboxes of the kind %s: %s", self._called, weak)

    async def probe(self) -> ProviderStatus:
        # Whoever probes is told by the answer.
        warned, self._warned = self._warned, True
        try:
            return await self._probe()
        finally:
            self._warned = warned

    async def _probe(self) -> ProviderStatus:
        begun = time.perf_counter()
        deadline = Deadline.after(_PROBE_S, f"the probe of {self.name}")
        try:
            async with await self.lease(SandboxSpec(), deadline) as sandbox:
                ready = time.perf_counter()
                execution = await sandbox.run(["true"], deadline=deadline, timeout_s=_PROBE_S)
                done = time.perf_counter()
        except (Fault, DeadlineReached) as error:
            return ProviderStatus(name=self.name, works=False, detail=str(error))
        if execution.exit_code != 0:
            said = execution.stderr.head.decode(errors="replace").strip()
            return ProviderStatus(
                name=self.name, works=False, detail=f"'true' ended with {execution.exit_code}: {said}"
            )
        version = self._launcher.identity().get("version", "")
        timing = f"ready in {1e3 * (ready - begun):.0f} ms, one command in {1e3 * (done - ready):.1f} ms"
        weak = "WEAK; " if self._launcher.weak else ""
        return ProviderStatus(name=self.name, works=True, detail=f"{weak}{version}: {timing}")

    def identity(self) -> dict[str, str]:
        return {
            "kind": self.name,
            "supervisor": supervisor_sha256(),
            "network": "none",
            **self._launcher.identity(),
        }

    async def aclose(self) -> None:
        """Close what is still open, and wait for the removal of dead owners' workspaces. No lease comes after it.

        A lease that is under way fails.

        Raises:
            SandboxFault: Something could not be closed; all else was.
        """
        self._closed = True
        if not await finish(self._end(), _END_S):
            _log.warning("closing the %s sandboxes takes longer than %.0f s; it goes on", self._called, _END_S)

    async def _end(self) -> None:
        going = [sandbox.aclose() for sandbox in self._open]
        going += [end_of(each) for each in (*self._starting, self._sweeping) if each is not None]
        await close_all(going, whose=f"the provider of {self._called} sandboxes")

    async def _start(self, spec: SandboxSpec, rules: tuple[HostRule, ...], steps: AsyncExitStack) -> Sandbox:
        # Not in a thread: a cancellation must not come between the folder and who removes it.
        lease = make_workspace(self._root, self._launcher.uid, spec.labels)
        steps.push_async_callback(_remove, lease)
        folder = lease / "workspace" if spec.limits.workspace_bytes is None else None
        launch = await self._launcher.launch(folder, spec, lease=lease)
        steps.push_async_callback(_end, launch.container)
        connection = Connection(launch)
        steps.push_async_callback(connection.aclose)
        sandbox = SupervisedSandbox(
            connection=connection,
            environment=dict((*self._launcher.environment, *launch.environment)),
            memory=launch.container.memory,
            write_labels=partial(write_labels, lease),
            release=steps.aclose,
        )
        await sandbox.set_up(launch.workspace_inside or self._launcher.workspace_inside, launch.limits or spec.limits)
        if rules:
            await sandbox.open_network(self._make_proxy(rules))
        await write_first_files(sandbox, spec)
        return sandbox

    def _sweep(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.ensure_future(asyncio.to_thread(self._remove_dead))

    def _remove_dead(self) -> list[Path]:
        """Remove what harnesses that died have left. Blocking."""
        return [*sweep_workspaces(self._root), *self._launcher.sweep()]

    def _no_room(self, error: OSError) -> Fault:
        """Room may be made by the end of another sandbox, so this is worth another try."""
        return SandboxFault(
            f"there is no room for a workspace in {self._root}: {error.strerror}. Free space there, or set TMPDIR to a "
            "folder that has more"
        )

    def _not_started(self, why: str) -> Fault:
        if self._proven:
            return SandboxFault(f"a {self._called} sandbox could not be started: {why}")
        return SandboxFault.permanent(
            f"{self._called} sandboxes cannot be started here: {ended(why)} {self._launcher.remedy(why)}"
        )


async def _end(container: Container) -> None:
    container.kill()
    await container.gone()


async def _remove(lease: Path) -> None:
    try:
        await asyncio.to_thread(remove_tree, lease)
    except OSError as error:
        # The episode is over and its result stands; the next start tries again.
        _log.warning("the workspace %s could not be removed: %s", lease, error)
