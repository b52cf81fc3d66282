"""Law 12: episodes whose tools do their worst end in time, blame who is to blame, and leave nothing behind.

The whole campaign is ``python -m tests.campaign``; here is a short one for every day, and the whole one marked slow.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from agentenv.sandboxes.cgroups import find_cgroups
from agentenv.sandboxes.workspaces import Owner

from tests.campaign.campaign import Campaign, run
from tests.campaign.kinds import PROVIDERS, kinds_for
from tests.campaign.remains import Looking, adopting, bury, lines_with
from tests.campaign.suite import MARK
from tests.campaign.table import table
from tests.campaign.troubles import Outcome

WITHOUT_DAEMON = ("bwrap", "namespaces")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the sandboxes' user can pass through."""
    with tempfile.TemporaryDirectory(prefix="agentenv-campaign-") as name:
        path = Path(name)
        (path / "sandboxes").mkdir()
        for each in (path, path / "sandboxes"):
            each.chmod(0o711)
        yield path


async def campaign_of(folder: Path, sandbox: str, *, episodes: int) -> None:
    root = folder / "sandboxes"
    report = await run(
        Campaign(
            provider=PROVIDERS[sandbox](root),
            root=root,
            out=folder / "run",
            episodes=episodes,
            kinds=kinds_for(sandbox),
        )
    )
    assert report.wrong == [], table(report)
    assert sum(account.episodes for account in report.accounts.values()) == episodes
    assert {outcome for account in report.accounts.values() for outcome in account.outcomes} == set(Outcome)


@pytest.mark.sandboxes
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sandbox", WITHOUT_DAEMON)
async def test_episodes_that_do_their_worst(folder: Path, sandbox: str) -> None:
    await campaign_of(folder, sandbox, episodes=40)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("sandbox", WITHOUT_DAEMON)
async def test_five_hundred_episodes_that_do_their_worst(folder: Path, sandbox: str) -> None:
    await campaign_of(folder, sandbox, episodes=500)


class TestWhatIsLeftIsFound:
    """Or the campaign would prove nothing."""

    @pytest.fixture
    def looking(self, folder: Path) -> Looking:
        (folder / "blobs" / "tmp").mkdir(parents=True)
        return Looking(token="campaign-test", root=folder / "sandboxes", blobs=folder / "blobs")

    def test_processes(self, looking: Looking) -> None:
        """One that descends from here, though it lost its parent and left its session, and one that bears the mark."""
        program = "import os, sys; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); input()"
        with adopting():
            before = looking.look()
            read, write = os.pipe()
            with subprocess.Popen([sys.executable, "-c", program], stdin=read, stdout=subprocess.PIPE) as started:
                assert started.stdout is not None
                orphan = int(started.stdout.readline())
                started.wait()
                assert [name.split()[0] for name in looking.look().beyond(before)["processes"]] == [str(orphan)]
                os.close(write)
                os.close(read)
                started.stdout.read()
            while "processes" in looking.look().beyond(before):
                bury(before)
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={MARK: looking.token}) as marked:
            assert [name.split()[0] for name in looking.look().processes] == [str(marked.pid)]

    def test_files(self, looking: Looking) -> None:
        before = looking.look()
        (looking.root / "workspace").mkdir()
        (looking.blobs / "tmp" / "half").touch()
        assert len(looking.look().beyond(before)["files"]) == 2

    def test_descriptors(self, looking: Looking) -> None:
        before = looking.look()
        with (looking.root.parent / "open").open("w"):
            assert list(looking.look().beyond(before)) == ["descriptors"]
        assert looking.look().beyond(before) == {}

    def test_groups(self, looking: Looking) -> None:
        before = looking.look()
        made = [parent / f"{Owner.this_process().prefix}left" for parent in find_cgroups().parents]
        for group in made:
            group.mkdir()
        try:
            assert looking.look().beyond(before).get("groups", []) == sorted(map(str, made))
        finally:
            for group in made:
                group.rmdir()

    def test_mounts(self) -> None:
        text = "30 20 0:25 / /tmp/ours/x rw - tmpfs tmpfs rw\n31 20 0:26 / /tmp/other rw - tmpfs tmpfs rw\n"
        assert lines_with(["/tmp/ours"], text) == text.splitlines()[:1]
