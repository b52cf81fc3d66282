"""A pool keeps the contract of what is in it, has warm ones ready, keeps its cap, and loses no slot."""

from __future__ import annotations

import asyncio

import pytest
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.errors import ConfigError, SandboxFault
from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.sandboxes.pool import PooledProvider
from agentenv.sandboxes.pooled import PooledSandbox
from agentenv.testing.contracts.sandbox import SandboxContract
from agentenv.testing.contracts.sandbox_calls import patience, run
from agentenv.testing.sandboxes import InMemoryProvider


class TestPooledFake(SandboxContract):
    @pytest.fixture
    async def provider(self):
        async with PooledProvider(InMemoryProvider(), warm=1, most=3) as provider:
            yield provider


class TestPooledBwrap(SandboxContract):
    @pytest.fixture
    async def provider(self):
        async with PooledProvider(BwrapProvider(), warm=1, most=3) as provider:
            yield provider

    @pytest.fixture
    async def sandbox(self, provider):
        """One that was warm."""
        files = {"a.txt": b"alpha\n", "folder/b.txt": b"beta\n", "folder/deep/c.bin": bytes(range(256))}
        spec = SandboxSpec(files=files, limits=SandboxLimits(output_bytes=1000, processes=64))
        provider.expect(spec)
        await provider.ready()
        async with await provider.lease(spec, patience()) as sandbox:
            yield sandbox


class Breaking(InMemoryProvider):
    """Its starts fail as often as it is told, and can be held back."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.started = 0
        self.open_at_most = 0

    async def lease(self, spec, deadline):
        self.started += 1
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise SandboxFault("bad luck")
        sandbox = await super().lease(spec, deadline)
        self.open_at_most = max(self.open_at_most, self.open)
        return sandbox

    @property
    def open(self) -> int:
        return sum(not sandbox.closed for sandbox in self.leased)


@pytest.fixture
def inner():
    return Breaking()


async def test_warm_ones_are_ready_before_they_are_asked_for(inner):
    """And are replaced; each gets its own files and labels."""
    async with PooledProvider(inner, warm=2) as pool:
        spec = SandboxSpec(files={"f": b"x"}, labels={"episode": "7"})
        pool.expect(spec)
        await pool.ready()
        assert inner.open == 2
        assert inner.leased[1].files == {}
        async with await pool.lease(spec, patience()) as sandbox:
            assert await sandbox.read("f") == b"x"
            assert [each.labels for each in inner.leased if each.labels] == [{"episode": "7"}]
            await pool.ready()
            assert inner.open == 3
        assert inner.open == 2
    assert inner.open == 0


async def test_other_limits_are_another_kind(inner):
    """A lease never gets limits or a network it did not ask for."""
    async with PooledProvider(inner, warm=1) as pool:
        pool.expect(SandboxSpec())
        await pool.ready()
        for spec in (SandboxSpec(limits=SandboxLimits(processes=7)), SandboxSpec(network=("example.org",))):
            before = inner.started
            async with await pool.lease(spec, patience()):
                assert inner.started == before + 1
                await pool.ready()


async def test_cap_is_on_leased_and_warm_together(inner):
    """Whoever comes too late waits for the first that is closed, in order, and until its own deadline."""
    async with PooledProvider(inner, warm=2, most=3) as pool:
        held = [await pool.lease(SandboxSpec(), patience()) for _ in range(3)]
        soon = Deadline.after(0.05, "a start")
        with pytest.raises(DeadlineReached) as reached:
            await pool.lease(SandboxSpec(), soon)
        assert reached.value.deadline is soon
        order: list[int] = []

        async def take(number: int) -> None:
            async with await pool.lease(SandboxSpec(), patience()):
                order.append(number)

        takers = [asyncio.ensure_future(take(number)) for number in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for sandbox in held:
            await sandbox.aclose()
            await sandbox.aclose()
        await asyncio.gather(*takers)
        await pool.ready()
        assert order == [0, 1, 2, 3, 4]
        assert inner.open_at_most == 3
        assert inner.open == 2


async def test_warm_ones_of_another_kind_make_room(inner):
    async with PooledProvider(inner, warm=2, most=2) as pool:
        pool.expect(SandboxSpec())
        await pool.ready()
        other = SandboxSpec(limits=SandboxLimits(processes=7))
        async with await pool.lease(other, patience()), await pool.lease(other, patience()):
            assert inner.open == 2
        assert inner.open_at_most == 2


async def test_failed_starts_lose_no_slot(inner):
    """Neither those that somebody waits for, nor those in the background, nor those given up."""
    async with PooledProvider(inner, warm=1, most=1) as pool:
        for _ in range(3):
            inner.failures = 1
            with pytest.raises(SandboxFault, match="bad luck"):
                await pool.lease(SandboxSpec(), patience())
            inner.failures = 1
            pool.expect(SandboxSpec())
            await pool.ready()
            inner.gate.clear()
            giving_up = asyncio.ensure_future(pool.lease(SandboxSpec(), patience()))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            giving_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await giving_up
            inner.gate.set()
            refused = SandboxSpec(files={"../outside": b""})
            with pytest.raises(SandboxFault, match="outside"):
                await pool.lease(refused, patience())
        async with await pool.lease(SandboxSpec(), patience()) as sandbox:
            assert (await run(sandbox, "true")).exit_code == 0


async def test_dead_warm_ones_are_not_leased(inner):
    async with PooledProvider(inner, warm=1) as pool:
        for files in ({}, {"f": b"x"}):
            pool.expect(SandboxSpec())
            await pool.ready()
            await inner.leased[-1].aclose()
            async with await pool.lease(SandboxSpec(files=files), patience()) as sandbox:
                assert (await run(sandbox, "true")).exit_code == 0


async def test_whoever_waits_gets_the_one_that_was_starting(inner):
    async with PooledProvider(inner, warm=1, most=1) as pool:
        inner.gate.clear()
        pool.expect(SandboxSpec())
        waiting = asyncio.ensure_future(pool.lease(SandboxSpec(files={"f": b"x"}), patience()))
        other = asyncio.ensure_future(pool.lease(SandboxSpec(network=("example.org",)), patience()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        inner.gate.set()
        async with await waiting as sandbox:
            assert await sandbox.read("f") == b"x"
            assert inner.started == 1
        await (await other).aclose()
        assert inner.open_at_most == 1


async def test_closing_ends_starts_and_waiting(inner):
    pool = PooledProvider(inner, warm=1, most=2)
    held = await pool.lease(SandboxSpec(), patience())
    inner.gate.clear()
    waiting = asyncio.ensure_future(pool.lease(SandboxSpec(network=("example.org",)), patience()))
    for _ in range(5):
        await asyncio.sleep(0)
    await pool.aclose()
    with pytest.raises(SandboxFault):
        await waiting
    assert inner.open == 0
    await held.aclose()
    with pytest.raises(SandboxFault, match="closed"):
        await pool.lease(SandboxSpec(), patience())


@pytest.mark.parametrize("ticks", range(12))
@pytest.mark.parametrize("most", [1, 2, None])
async def test_giving_up_at_any_moment_loses_nothing(inner, ticks, most):
    """At every await of a lease that waits for a start: the slot is there for the next, and nothing stays open."""
    async with PooledProvider(inner, warm=1, most=most) as pool:
        inner.gate.clear()
        pool.expect(SandboxSpec())
        giving_up = asyncio.ensure_future(pool.lease(SandboxSpec(files={"f": b"x"}), patience()))
        for _ in range(3):
            await asyncio.sleep(0)
        inner.gate.set()
        for _ in range(ticks):
            await asyncio.sleep(0)
        giving_up.cancel()
        for sandbox in await asyncio.gather(giving_up, return_exceptions=True):
            if not isinstance(sandbox, BaseException):
                await sandbox.aclose()
        await pool.ready()
        async with await pool.lease(SandboxSpec(), patience()):
            pass
    assert inner.open == 0


@pytest.mark.parametrize("ticks", range(12))
@pytest.mark.parametrize("giving_up", [False, True])
@pytest.mark.parametrize("warm", [0, 1])
async def test_closing_at_any_moment_leaves_nothing_open(inner, ticks, giving_up, warm):
    """Whatever leases and starts are under way, or are given up in that moment."""
    pool = PooledProvider(inner, warm=warm, most=2)
    inner.gate.clear()
    leases = [asyncio.ensure_future(pool.lease(SandboxSpec(), patience())) for _ in range(4)]
    for _ in range(3):
        await asyncio.sleep(0)
    inner.gate.set()
    for _ in range(ticks):
        await asyncio.sleep(0)
    if giving_up:
        leases[ticks % 4].cancel()
    await pool.aclose()
    for sandbox in await asyncio.gather(*leases, return_exceptions=True):
        assert isinstance(sandbox, (SandboxFault, asyncio.CancelledError, PooledSandbox)), repr(sandbox)
    assert inner.open == 0


async def test_nothing_is_leased_by_a_pool_that_was_closed_meanwhile(inner):
    pool = PooledProvider(inner, warm=0)
    inner.gate.clear()
    late = asyncio.ensure_future(pool.lease(SandboxSpec(), patience()))
    for _ in range(3):
        await asyncio.sleep(0)
    await pool.aclose()
    inner.gate.set()
    with pytest.raises(SandboxFault, match="closed"):
        await late
    assert inner.open == 0


@pytest.mark.parametrize(("warm", "most"), [(-1, None), (1, 0)])
def test_impossible_numbers(inner, warm, most):
    with pytest.raises(ConfigError, match="pool"):
        PooledProvider(inner, warm=warm, most=most)
