"""A collection that is cancelled, at whatever moment, leaves nothing behind and nothing half said.

Moments are counted in passes of the event loop, not in seconds.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agentenv.core.sandbox import SandboxProvider
from agentenv.core.store import AttemptKey
from agentenv.core.task import Grade, GradeState, Task
from agentenv.errors import PolicyServerFault
from agentenv.records.axes import FaultDomain, StopReason
from agentenv.records.clock_fields import differences
from agentenv.records.episode import EpisodeRecord
from agentenv.registry import load_suite
from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.storage import journal as journal_module
from agentenv.storage.journal import Durability
from agentenv.toolkit.suite import Variant, call, scripted

from agentenv_tools.shell import shell
from tests.at_once import AtOnce
from tests.rollout.kit import (
    Hooked,
    Setup,
    audited,
    changed,
    collect,
    opened,
    player,
    right,
    suite_of,
    sums,
    wall_clock,
)


async def ticks(n: int) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


async def cancelled_after(n: int, out: Path, *, again_after: int | None = None, **setup: Any) -> bool:
    """Cancel a collection after n passes of the loop; say whether it was still going on."""
    async with opened(out, Setup(**setup)) as run:
        others = asyncio.all_tasks()
        collection = asyncio.ensure_future(run())
        await ticks(n)
        collection.cancel()
        if again_after is not None:
            await ticks(again_after)
            collection.cancel()
        await asyncio.wait([collection])
        assert asyncio.all_tasks() == others, "a task outlived the collection"
    if collection.cancelled():
        return True
    assert collection.result().complete
    return False


async def passes_of(out: Path, **setup: Any) -> int:
    """Let a collection come to its end, and say how many passes of the loop it took."""
    passes = 0
    async with opened(out, Setup(**setup)) as run:
        collection = asyncio.ensure_future(run())
        while not collection.done():
            await asyncio.sleep(0)
            passes += 1
    assert collection.result().complete
    return passes


def finals(out: Path) -> dict[str, EpisodeRecord]:
    return {key.episode_id: record for key, record in audited(out).items() if record.done}


def check_endings(out: Path) -> None:
    """Every attempt that began has an ending: its own, or ``cancelled``, or its own cut off before it was scored."""
    for record in audited(out).values():
        assert record.ended
        assert record.fault is None
        assert record.done or StopReason.CANCELLED in (record.reason, record.cut_by)
        assert record.done == (record.reward is not None)


def check_same(out: Path, undisturbed: dict[str, EpisodeRecord]) -> None:
    found = finals(out)
    assert found.keys() == undisturbed.keys()
    for name, record in found.items():
        assert differences(record, undisturbed[name]) == []


@pytest.mark.parametrize("durability", ["process", "power"])
@pytest.mark.parametrize("again_after", [None, 2])
async def test_cancelling_at_every_pass_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again_after: int | None, durability: Durability
) -> None:
    """Law 11: whenever it comes, once or twice, the run stays sound, and resuming ends as if nothing had been."""
    monkeypatch.setattr(journal_module, "ThreadPoolExecutor", AtOnce)
    setup: dict[str, Any] = {"tasks": 2, "suite": changed(grader=_awaiting), "durability": durability}
    await collect(tmp_path / "undisturbed", **setup)
    undisturbed = finals(tmp_path / "undisturbed")
    reasons: set[StopReason | None] = set()
    passes = 0
    while await cancelled_after(passes, tmp_path / f"{passes}", again_after=again_after, **setup):
        out = tmp_path / f"{passes}"
        check_endings(out)
        reasons |= {record.reason for record in audited(out).values()}
        await collect(out, **setup)
        check_same(out, undisturbed)
        passes += 1
    assert passes > 15
    assert reasons == {StopReason.CANCELLED, StopReason.FINAL_ANSWER}


async def test_cancelling_while_the_disk_is_at_work(tmp_path: Path) -> None:
    """Law 11: the same where every fact waits for the disk, in a thread that cannot be cancelled."""
    setup = {"tasks": 2, "suite": changed(grader=_awaiting), "durability": "power"}
    passes = await passes_of(tmp_path / "undisturbed", **setup)
    undisturbed = finals(tmp_path / "undisturbed")
    moments = random.Random(7)
    cancelled = 0
    for number in range(15):
        out = tmp_path / f"{number}"
        # Early ones as likely as late ones: how many passes there are depends on how fast the disk is just then.
        cancelled += await cancelled_after(round(passes ** moments.random()), out, **setup)
        check_endings(out)
        await collect(out, **setup)
        check_same(out, undisturbed)
    assert cancelled > 0


async def _awaiting(state: GradeState) -> Grade:
    await ticks(3)
    return await right(state)


async def test_cancelling_while_a_grader_is_at_work(tmp_path: Path) -> None:
    """How it ended stands; that it is not scored is the cancellation's doing, and resuming makes it anew."""
    grading = asyncio.Event()

    async def endless(state: GradeState) -> Grade:
        grading.set()
        await asyncio.Event().wait()
        return await right(state)

    def make(draw: Variant) -> Task:
        # Not content-hashed: the grader carries an event.
        return replace(sums(draw), grader=endless)

    class Plain:
        name, size, levels, sha256 = "sums", 1000, (1,), "0" * 64

        def task(self, seed: int, level: int = 1) -> Task:
            return make(Variant(suite="sums", seed=seed, level=level))

        def demonstrations(self, n: int, level: int = 1) -> tuple[()]:
            return ()

    collection = asyncio.ensure_future(collect(tmp_path / "run", tasks=1, suite=Plain()))
    await grading.wait()
    collection.cancel()
    await asyncio.wait([collection])
    assert collection.cancelled()
    check_endings(tmp_path / "run")
    (record,) = audited(tmp_path / "run").values()
    assert (record.reason, record.cut_by) == (StopReason.FINAL_ANSWER, StopReason.CANCELLED)
    assert (record.reward, record.done, len(record.steps)) == (None, False, 2)


async def test_cancelling_between_two_attempts(tmp_path: Path) -> None:
    failed = asyncio.Event()

    async def hook(request: object) -> None:
        failed.set()
        raise PolicyServerFault("lost")

    options = {"retry_wait_s": 3600.0}
    collection = asyncio.ensure_future(collect(tmp_path / "run", tasks=2, policy=Hooked(hook), options=options))
    await failed.wait()
    await ticks(20)
    collection.cancel()
    await asyncio.wait([collection])
    assert collection.cancelled()
    assert {record.fault_domain for record in audited(tmp_path / "run").values()} == {FaultDomain.POLICY_SERVER}


class TestInSandboxes:
    """The same with real sandboxes: no process and no folder of theirs is left."""

    @pytest.fixture
    def root(self) -> Iterator[Path]:
        """A folder for workspaces that the sandboxes' user can reach."""
        path = Path(tempfile.mkdtemp(prefix="agentenv-test-"))
        path.chmod(0o711)
        yield path
        shutil.rmtree(path)

    @pytest.fixture
    async def provider(self, root: Path) -> AsyncIterator[SandboxProvider]:
        async with BwrapProvider(workspace_root=root) as provider:
            assert (await provider.probe()).works
            yield provider

    @staticmethod
    def check_gone(root: Path, *marks: str) -> None:
        assert list(root.iterdir()) == []
        for mark in (str(root), *marks):
            assert processes(mark) == []

    async def test_cancelling_at_random_moments(self, tmp_path: Path, root: Path, provider: SandboxProvider) -> None:
        setup = {"suite": load_suite("keep-original"), "tasks": 3, "provider": provider, "options": {"concurrency": 3}}
        passes = await passes_of(tmp_path / "undisturbed", **setup)
        undisturbed = finals(tmp_path / "undisturbed")
        assert {record.reward for record in undisturbed.values()} == {1.0}
        moments = random.Random(5)
        for number in range(4):
            out = tmp_path / f"{number}"
            await cancelled_after(moments.randrange(passes), out, **setup)
            self.check_gone(root)
            check_endings(out)
            await collect(out, **setup)
            check_same(out, undisturbed)

    async def test_cancelling_a_command_that_hangs(self, tmp_path: Path, root: Path, provider: SandboxProvider) -> None:
        """The command, what it forked and what left its session are gone before the collection has ended."""
        mark = marked(8234571)
        suite = suite_of(_shelling(f"(setsid sleep {mark} &) ; sleep {mark} & touch up; sleep {mark}"))
        setup = {"suite": suite, "tasks": 2, "provider": provider}
        collection = asyncio.ensure_future(collect(tmp_path / "run", **setup))
        while len(processes(f"sleep\0{mark}")) < 6:
            await asyncio.sleep(0)
        collection.cancel()
        await asyncio.wait([collection])
        self.check_gone(root, mark)
        check_endings(tmp_path / "run")
        assert {record.reason for record in audited(tmp_path / "run").values()} == {StopReason.CANCELLED}

    async def test_a_command_that_hangs_meets_the_episodes_deadline(
        self, tmp_path: Path, root: Path, provider: SandboxProvider
    ) -> None:
        """Law 12: the episode ends with the budget that ran out, and nothing it started is alive afterwards."""
        mark = marked(8234572)
        suite = suite_of(_shelling(f"(setsid sleep {mark} &) ; trap '' TERM INT; sleep {mark}; sleep {mark}"))
        episode = {"budgets": (wall_clock(1.0),)}
        tally = await collect(tmp_path / "run", suite=suite, tasks=2, provider=provider, episode=episode)
        assert tally.done == 2
        self.check_gone(root, mark)
        for record in audited(tmp_path / "run").values():
            assert (record.reason, record.budget) == (StopReason.COLLECTOR_BUDGET, "collector.wall_clock")

    async def test_a_flood_of_output_and_of_processes_is_an_observation(
        self, tmp_path: Path, root: Path, provider: SandboxProvider
    ) -> None:
        """What a command does to itself is told to the policy, and the whole output is kept by its hash."""
        mark = marked(8234573)
        for number, command in enumerate(
            ["head -c 3000000 /dev/zero | tr '\\0' x", f"for n in $(seq 2000); do sleep {mark} & done; echo survived"]
        ):
            out = tmp_path / f"{number}"
            await collect(out, suite=suite_of(_shelling(command, "The answer is 5.")), tasks=1, provider=provider)
            self.check_gone(root, mark)
            record = audited(out)[AttemptKey("e000000.0", 1)]
            assert (record.done, record.reward) == (True, 1.0)
            result = record.steps[0].results[0]
            assert len(result.text.encode()) <= 20_000
            if number == 0:
                assert result.bytes_dropped > 2_000_000
                assert result.full_output is not None
                assert result.full_output.size_bytes >= 3_000_000
                assert (out / "blobs").is_dir()


def _shelling(command: str, *then: str):
    """Tasks whose player runs a command, and goes on with ``then``, or with the command again."""

    def make(draw: Variant) -> Task:
        reference = scripted(call("shell", command=command), *then)
        return replace(sums(draw), tools=(shell,), scripts={"reference": reference})

    return make


def marked(seconds: int) -> str:
    """Give seconds to sleep that nobody else on this machine sleeps, another run of these tests included."""
    return f"{seconds}.{os.getpid():07d}"


def processes(word: str) -> list[int]:
    """Every process of this machine that has a word in its command line, and is no zombie."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


async def test_players_of_the_kit_play(tmp_path: Path) -> None:
    """The kit's own reference solves its sums: what the tests above compare with is a success."""
    await collect(tmp_path / "run", tasks=1, policy=player())
    assert [record.reward for record in finals(tmp_path / "run").values()] == [1.0]
