"""A run folder that others meddle with while it is written: what is lost is said, and readers are never in the way."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from agentenv.core.policy import Reply, SampleRequest
from agentenv.errors import HarnessFault
from agentenv.storage.run_folder import RunFolder

from tests.rollout.kit import Hooked, audited, collect


def remove(out: Path) -> None:
    (out / "journal" / "main.sqlite").unlink()


def remove_all(out: Path) -> None:
    shutil.rmtree(out)


def replace(out: Path) -> None:
    other = out / "other"
    shutil.copy(out / "journal" / "main.sqlite", other)
    other.rename(out / "journal" / "main.sqlite")


@pytest.mark.parametrize("meddle", [remove, remove_all, replace])
@pytest.mark.parametrize("durability", ["process", "power"])
async def test_a_journal_that_was_taken_away(tmp_path: Path, meddle: Callable[[Path], None], durability: str) -> None:
    """A collection does not say that all is well when nobody will ever read what it wrote."""
    out = tmp_path / "run"

    async def hook(request: SampleRequest) -> Reply | None:
        if request.request_id.startswith("e000002.") and request.turn == 1:
            with suppress(FileNotFoundError):
                meddle(out)
        return None

    with pytest.raises(HarnessFault, match="removed or replaced"):
        await collect(out, policy=Hooked(hook), tasks=6, durability=durability, options={"concurrency": 1})


async def test_readers_come_and_go_while_it_is_written(tmp_path: Path) -> None:
    """Law 11: whatever a reader sees at any moment folds and audits; neither holds the other up."""
    out = tmp_path / "run"
    seen: list[int] = []

    async def hook(request: SampleRequest) -> Reply | None:
        seen.append(len(audited(out)))
        with RunFolder.open(out).reader() as reader:
            reader.check()
        return None

    tally = await collect(out, policy=Hooked(hook), tasks=8, options={"concurrency": 2})
    assert tally.done == 8
    assert seen == sorted(seen)
    assert len(audited(out)) == 8
