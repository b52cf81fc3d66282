"""Sandboxes that were started before they are asked for, and a cap on how many there are.

A slot is what a sandbox needs to exist, be it leased, warm or starting; there are ``most`` of them. One that comes
free goes to whoever has waited longest, and only when nobody waits to a new warm sandbox.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.lifetime import finish
from agentenv.core.sandbox import ProviderStatus, Sandbox, SandboxLimits, SandboxProvider, SandboxSpec
from agentenv.errors import ConfigError, SandboxFault
from agentenv.sandboxes.closing import close_all
from agentenv.sandboxes.first_files import write_first_files
from agentenv.sandboxes.pooled import PooledSandbox

_log = logging.getLogger(__name__)

_START_S = 60.0
"""For one warm sandbox."""
_CLOSE_S = 60.0
_AT_ONCE = 4
"""Warm sandboxes that start at the same time: more would only take time from those that are waited for."""
_CLOSED = "the pool of sandboxes was closed"


@dataclass(frozen=True, slots=True)
class _Kind:
    """What cannot be changed once a sandbox runs."""

    limits: SandboxLimits
    network: tuple[str, ...]


@dataclass(slots=True, eq=False)
class _Waiter:
    """Somebody who gets the next slot: free, or with a sandbox of the kind in it."""

    kind: _Kind
    future: asyncio.Future[Sandbox | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def waits(self) -> bool:
        """Whether it still does: one that was cancelled leaves the queue only when it runs again."""
        return not self.future.done()


class PooledProvider(SandboxProvider):
    """Leases sandboxes of another provider, which it owns."""

    def __init__(self, inner: SandboxProvider, *, warm: int, most: int | None = None) -> None:
        """Make a pool; nothing is started before the first lease, or `expect`.

        Args:
            inner: Starts the sandboxes.
            warm: How many stand ready, of each kind (limits and network) that was leased or expected.
            most: How many there may be at once, the warm ones included; None is no cap.

        Raises:
            ConfigError: The numbers cannot work.
        """
        if warm < 0 or (most is not None and most < 1):
            raise ConfigError(f"A pool of {warm} warm sandboxes, at most {most} in all: expected 0 or more, 1 or more.")
        self.name = inner.name
        self._inner = inner
        self._most_warm = warm
        self._most = most
        self._taken = 0
        """Slots that are not free."""
        self._warm: dict[_Kind, list[Sandbox]] = {}
        self._starting: dict[asyncio.Task[None], _Kind | None] = {}
        """What goes on in the background: the start of a warm sandbox of a kind, or the end of one (None)."""
        self._starts = asyncio.Semaphore(_AT_ONCE)
        self._leased: set[Sandbox] = set()
        self._waiters: deque[_Waiter] = deque()
        self._closed = False

    async def probe(self) -> ProviderStatus:
        return await self._inner.probe()

    def identity(self) -> dict[str, str]:
        return self._inner.identity()

    def expect(self, spec: SandboxSpec) -> None:
        """Start warm sandboxes for leases with these limits and this network, in the background."""
        self._fill(_Kind(spec.limits, spec.network))

    async def ready(self) -> None:
        """Wait until no warm sandbox is being started."""
        while self._starting:
            await asyncio.wait(list(self._starting))

    async def lease(self, spec: SandboxSpec, deadline: Deadline) -> Sandbox:
        if self._closed:
            raise SandboxFault.permanent(_CLOSED)
        if deadline.passed:
            raise DeadlineReached(f"the deadline of {deadline.name} fired", deadline)
        kind = _Kind(spec.limits, spec.network)
        async with deadline.enforce():
            sandbox = await self._get(kind, spec, deadline)
        self._leased.add(sandbox)
        if self._closed:  # meanwhile
            await finish(self._close(sandbox), _CLOSE_S)
            raise SandboxFault.permanent(_CLOSED)
        self._fill(kind)
        return PooledSandbox(sandbox, self._close)

    async def aclose(self) -> None:
        """End the starts, close every sandbox, and the inner provider."""
        self._closed = True
        for waiter in self._waiters:
            if waiter.waits:
                waiter.future.set_exception(SandboxFault.permanent(_CLOSED))
        self._waiters.clear()
        await finish(self._end(), _CLOSE_S)

    async def _end(self) -> None:
        for task, kind in self._starting.items():
            if kind is not None:
                task.cancel()
        await self.ready()
        warm = [sandbox for sandboxes in self._warm.values() for sandbox in sandboxes]
        self._warm.clear()
        closings = [sandbox.aclose() for sandbox in (*warm, *self._leased)]
        self._leased.clear()
        try:
            await close_all(closings, whose="a pool of sandboxes")
        finally:
            await self._inner.aclose()

    # Getting one.

    async def _get(self, kind: _Kind, spec: SandboxSpec, deadline: Deadline) -> Sandbox:
        while True:
            warm = self._take_warm(kind) or await self._slot(kind)
            try:
                if warm is None:
                    return await self._inner.lease(spec, deadline)
                if await self._dress(warm, spec):
                    return warm
            except BaseException:
                if warm is None:
                    self._free()
                else:
                    await finish(self._discard(warm), _CLOSE_S)
                raise
            # It died while it waited; the next one, or a new one, will do.
            await finish(self._discard(warm), _CLOSE_S)

    async def _dress(self, sandbox: Sandbox, spec: SandboxSpec) -> bool:
        """Make a warm sandbox what was asked for; False if it is dead."""
        try:
            # At once; without files, something else has to prove that it is alive.
            steps = [write_first_files(sandbox, spec) if spec.files else sandbox.list()]
            if spec.labels:
                steps.append(sandbox.relabel(spec.labels))
            await asyncio.gather(*steps)
        except OSError as error:
            raise SandboxFault(f"the workspace cannot have its files: {error}") from error
        except SandboxFault as fault:
            if not fault.retryable:
                raise
            _log.warning("a warm sandbox had ended: %s", fault)
            return False
        return True

    def _take_warm(self, kind: _Kind) -> Sandbox | None:
        sandboxes = self._warm.get(kind)
        return sandboxes.pop() if sandboxes else None

    async def _slot(self, kind: _Kind) -> Sandbox | None:
        """Get a slot, perhaps with a sandbox in it: a free one, that of a warm sandbox of another kind, or the next."""
        if not self._full and not self._waiters:
            self._taken += 1
            return None
        other = next((sandbox for each in list(self._warm) if (sandbox := self._take_warm(each))), None)
        if other is not None:
            try:
                await finish(other.aclose(), _CLOSE_S)
            except BaseException:
                self._free()
                raise
            return None
        waiter = _Waiter(kind)
        self._waiters.append(waiter)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif not waiter.future.cancelled() and waiter.future.exception() is None:
                self._hand_on(waiter.future.result())
            raise

    # Giving slots back.

    @property
    def _full(self) -> bool:
        return self._most is not None and self._taken >= self._most

    def _free(self) -> None:
        """Give a slot to who has waited longest, or to nobody."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if waiter.waits:
                waiter.future.set_result(None)
                return
        self._taken -= 1

    def _hand_on(self, sandbox: Sandbox | None) -> None:
        """Give back what came too late."""
        if sandbox is None:
            self._free()
        else:
            self._in_background(self._discard(sandbox), None)

    async def _close(self, sandbox: Sandbox) -> None:
        if sandbox not in self._leased:
            await sandbox.aclose()
            return
        self._leased.discard(sandbox)
        await self._discard(sandbox)

    async def _discard(self, sandbox: Sandbox) -> None:
        try:
            await sandbox.aclose()
        finally:
            self._free()

    # Warm ones.

    def _fill(self, kind: _Kind) -> None:
        """Begin to start what is missing of a kind, as far as there are slots that nobody waits for."""
        missing = self._most_warm - len(self._warm.get(kind, ()))
        missing -= sum(each == kind for each in self._starting.values())
        for _ in range(missing):
            if self._closed or self._full or self._waiters:
                return
            self._taken += 1
            self._in_background(self._start_warm(kind), kind)

    def _in_background(self, work: Coroutine[Any, Any, None], kind: _Kind | None) -> None:
        task = asyncio.ensure_future(work)
        self._starting[task] = kind
        task.add_done_callback(self._started)

    def _started(self, task: asyncio.Task[None]) -> None:
        del self._starting[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a warm %s sandbox could not be started: %s", self.name, error)

    async def _start_warm(self, kind: _Kind) -> None:
        try:
            async with self._starts:
                spec = SandboxSpec(limits=kind.limits, network=kind.network)
                sandbox = await self._inner.lease(spec, Deadline.after(_START_S, "the start of a warm sandbox"))
        except BaseException:
            self._free()
            raise
        for waiter in self._waiters:
            if waiter.kind == kind and waiter.waits:
                self._waiters.remove(waiter)
                waiter.future.set_result(sandbox)
                return
        if self._closed or self._waiters:
            await finish(self._discard(sandbox), _CLOSE_S)
        else:
            self._warm.setdefault(kind, []).append(sandbox)
