"""The end of a provider: everything is closed, side by side, whatever becomes of one; and it is the end."""

from __future__ import annotations

import asyncio

import pytest
from agentenv.core.sandbox import SandboxSpec
from agentenv.errors import SandboxFault
from agentenv.sandboxes.bwrap import BwrapLauncher
from agentenv.sandboxes.closing import close_all
from agentenv.sandboxes.launching import Container
from agentenv.sandboxes.pool import PooledProvider
from agentenv.sandboxes.supervised_provider import SupervisedProvider
from agentenv.testing.contracts.sandbox_calls import patience, run
from agentenv.testing.sandboxes import InMemoryProvider
from tests.sandboxes.kinds import ALL


class Watched(Container):
    """A container whose end can be held back, and fail once it is over."""

    def __init__(self, inner: Container, launcher: Troubled) -> None:
        self._inner = inner
        self._launcher = launcher

    def kill(self) -> None:
        self._inner.kill()

    async def gone(self) -> None:
        await self._inner.gone()
        if self._launcher.meeting is not None:
            await self._launcher.meeting.wait()
        if self._launcher.failures:
            self._launcher.failures -= 1
            raise OSError("a group that stays")

    def last_words(self) -> str:
        return self._inner.last_words()


class Troubled(BwrapLauncher):
    """Real sandboxes, with trouble at their start and end."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting: asyncio.Barrier | None = None
        """All containers have to be ending at the same time."""
        self.failures = 0
        self.launching = asyncio.Event()
        self.may_launch = asyncio.Event()
        self.may_launch.set()

    async def launch(self, workspace, spec, *, lease):
        self.launching.set()
        await self.may_launch.wait()
        launch = await super().launch(workspace, spec, lease=lease)
        object.__setattr__(launch, "container", Watched(launch.container, self))
        return launch


@pytest.fixture
def root(tmp_path):
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o711)
    return tmp_path


@pytest.fixture
def launcher():
    return Troubled()


@pytest.fixture
async def provider(launcher, root):
    return SupervisedProvider(launcher, workspace_root=root)


async def test_sandboxes_are_closed_side_by_side(provider, launcher, root, caplog):
    """Each waits for the others to be closing."""
    for _ in range(3):
        await provider.lease(SandboxSpec(), patience())
    launcher.meeting = asyncio.Barrier(3)
    await provider.aclose()
    assert list(root.iterdir()) == []
    assert caplog.records == []


async def test_one_that_fails_keeps_no_other_from_closing(provider, launcher, root):
    """And all failures are told at once, when everything is over."""
    sandboxes = [await provider.lease(SandboxSpec(), patience()) for _ in range(4)]
    launcher.failures = 2
    with pytest.raises(SandboxFault, match=r"2 of 5 failed.*a group that stays") as failed:
        await provider.aclose()
    assert isinstance(failed.value.__cause__, ExceptionGroup)
    assert len(failed.value.__cause__.exceptions) == 2
    assert list(root.iterdir()) == []
    for sandbox in sandboxes:
        with pytest.raises(SandboxFault):
            await run(sandbox, "true")
    await provider.aclose()


async def test_cancelled_closing_is_whole(provider, launcher, root):
    for _ in range(2):
        await provider.lease(SandboxSpec(), patience())
    closing = asyncio.ensure_future(provider.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert list(root.iterdir()) == []


async def test_lease_under_way_while_it_closes_fails(provider, launcher, root):
    """Closing waits for it, and nothing of it is left."""
    launcher.may_launch.clear()
    leasing = asyncio.ensure_future(provider.lease(SandboxSpec(), patience()))
    await launcher.launching.wait()
    closing = asyncio.ensure_future(provider.aclose())
    await asyncio.sleep(0)
    assert not closing.done()
    launcher.may_launch.set()
    await closing
    with pytest.raises(SandboxFault, match="closed"):
        await leasing
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("kind", ALL)
async def test_no_lease_comes_after_it(kind):
    """The error says why, and that another try is no use; a probe says so too."""
    provider = ALL[kind]()
    await provider.aclose()
    with pytest.raises(SandboxFault, match=rf"{kind}.*closed") as refused:
        await provider.lease(SandboxSpec(), patience())
    assert not refused.value.retryable
    assert "closed" in (await provider.probe()).detail
    await provider.aclose()


async def test_pool_closes_all_and_its_provider():
    """Whatever becomes of one sandbox of it."""
    inner = InMemoryProvider()
    pool = PooledProvider(inner, warm=0)
    for _ in range(3):
        await pool.lease(SandboxSpec(), patience())
    broken = inner.leased[0]

    async def fails_once() -> None:
        del broken.aclose
        raise OSError("it is stuck")

    broken.aclose = fails_once
    with pytest.raises(SandboxFault, match=r"1 of 3 failed.*it is stuck"):
        await pool.aclose()
    assert [each.closed for each in inner.leased] == [True, True, True]


async def test_same_failure_is_said_once():
    async def fails() -> None:
        raise OSError("no room")

    async def works() -> None:
        """Close."""

    with pytest.raises(SandboxFault, match=r"closing a shop: 2 of 3 failed: OSError: no room$"):
        await close_all([fails(), works(), fails()], whose="a shop")
    await close_all([], whose="nothing")
