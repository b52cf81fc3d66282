"""Many episodes at once: grouped, bounded, isolated from one another, retried only where infrastructure gave way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from agentenv.core.policy import Reply, SampleRequest
from agentenv.core.store import AttemptKey
from agentenv.core.task import Grade, GradeState, OnText, Task
from agentenv.envs.plan import EpisodeOptions
from agentenv.errors import ConfigError, HarnessFault, PolicyServerFault
from agentenv.records.axes import BudgetOwner, CallStatus, FaultDomain, Finish, Outcome, Scoring, StopReason
from agentenv.records.constraints import CheckerSpec
from agentenv.records.facts import EpisodeEnded, Fact
from agentenv.records.tokens import Sampled, pack_ids, pack_logprobs
from agentenv.rollout.schedule import Slot
from agentenv.testing.stores import InMemoryStore
from agentenv.toolkit.suite import Variant, rule

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

FAULTS = {
    "permanent": PolicyServerFault.permanent("no such model"),
    "passing": PolicyServerFault("lost"),
    "own bug": RuntimeError("oops"),
}


class TestGroups:
    async def test_members_of_a_group_share_a_task_and_nothing_else(self, tmp_path: Path) -> None:
        """Every group has one task; every call of the run has a seed of its own."""
        tally = await collect(tmp_path / "run", tasks=3, group_size=4, seed=7)
        assert (tally.planned, tally.done, tally.complete) == (12, 12, True)
        records = list(audited(tmp_path / "run").values())
        groups = {group: [r for r in records if r.group_id == group] for group in {r.group_id for r in records}}
        assert len(groups) == 3
        for members in groups.values():
            assert {record.task_seed for record in members} == {members[0].task_seed}
            assert len({record.task_sha256 for record in members}) == 1
            assert sorted(record.member for record in members) == [0, 1, 2, 3]
        assert {record.task_seed for record in records} == {7, 8, 9}
        seeds = [step.seed for record in records for step in record.steps]
        assert len(set(seeds)) == len(seeds) == 24

    async def test_a_task_is_made_once_for_its_group_and_its_attempts(self, tmp_path: Path) -> None:
        """Making one takes the loop's time, which every other episode waits for."""
        made: list[int] = []
        failed: set[str] = set()

        def make(draw: Variant) -> Task:
            made.append(draw.seed)
            return sums(draw)

        async def hook(request: SampleRequest) -> None:
            episode, attempt, _ = request.request_id.rsplit(".", 2)
            if attempt == "1":
                failed.add(episode)
                raise PolicyServerFault("lost")

        options = {"concurrency": 2}
        suite = _Unhashed(make)
        tally = await collect(
            tmp_path / "run", tasks=3, group_size=4, suite=suite, policy=Hooked(hook), options=options
        )
        assert (tally.done, len(failed), tally.attempts) == (12, 12, 24)
        assert made == [0, 1, 2]

    async def test_an_observer_hears_of_every_attempt_and_reply(self, tmp_path: Path) -> None:
        heard: list[str] = []

        class Listener:
            def began(self, slot: Slot, attempt: int) -> None:
                heard.append(f"began {slot.episode_id} {attempt}")

            def replied(self, reply: Reply) -> None:
                heard.append("replied")

            def ended(self, slot: Slot, ending: EpisodeEnded | None) -> None:
                assert ending is not None
                heard.append(f"ended {slot.episode_id} {ending.reason}")

        await collect(tmp_path / "run", tasks=1, observer=Listener())
        assert heard == ["began e000000.0 1", "replied", "replied", "ended e000000.0 final_answer"]


class _Unhashed:
    """A suite whose tasks may carry what has no content hash."""

    name, size, levels, sha256 = "sums", 1000, (1,), "0" * 64

    def __init__(self, make: Callable[[Variant], Task]) -> None:
        self._make = make

    def task(self, seed: int, level: int = 1) -> Task:
        return self._make(Variant(suite="sums", seed=seed, level=level))

    def demonstrations(self, n: int, level: int = 1) -> tuple[()]:
        return ()


class TestConcurrency:
    async def test_as_many_at_once_as_allowed_and_no_more(self, tmp_path: Path) -> None:
        """All places are taken, and a place is free again only when its episode has ended."""
        waiting = 0
        most = 0
        full = asyncio.Event()

        async def hook(request: SampleRequest) -> None:
            nonlocal waiting, most
            waiting += 1
            most = max(most, waiting)
            if waiting == 3:
                full.set()
            await full.wait()
            waiting -= 1

        tally = await collect(tmp_path / "run", tasks=9, policy=Hooked(hook), options={"concurrency": 3})
        assert tally.done == 9
        assert most == 3


class TestIsolation:
    """What goes wrong in one episode is attributed, recorded, and leaves its siblings alone."""

    async def one_of_four(self, out: Path, domain: FaultDomain, reason: StopReason = StopReason.FAULT) -> None:
        records = audited(out)
        assert len({key.episode_id for key in records}) == 4
        bad = [record for record in records.values() if record.task_seed == 2]
        good = [record for record in records.values() if record.task_seed != 2]
        assert [record.done for record in good] == [True] * 3
        assert {record.fault_domain for record in bad} == {domain}
        assert {record.reason for record in bad} == {reason}
        assert [record.attempt for record in bad] == list(range(1, len(bad) + 1))
        assert {record.reward for record in bad} == {None}

    @pytest.mark.parametrize("name", ["passing", "own bug"])
    async def test_a_policy_that_fails_for_one_episode(self, tmp_path: Path, name: str) -> None:
        async def hook(request: SampleRequest) -> None:
            if request.request_id.startswith("e000002"):
                raise FAULTS[name]

        tally = await collect(tmp_path / "run", policy=Hooked(hook))
        assert (tally.done, tally.faulted, tally.stopped_by) == (3, 1, None)
        domain = FaultDomain.HARNESS if name == "own bug" else FaultDomain.POLICY_SERVER
        await self.one_of_four(tmp_path / "run", domain)
        assert tally.attempts == 3 + (1 if name == "own bug" else 3), "our own bug is not tried again"

    @pytest.mark.parametrize(
        "sampled",
        [
            Sampled(completion_ids=pack_ids([65] * 4000)),
            Sampled(completion_ids=pack_ids([65, 66]), logprobs=pack_logprobs([-1.0])),
            Sampled(completion_ids=b"abc"),
        ],
        ids=["too many tokens", "fewer log-probs than ids", "no ids at all"],
    )
    async def test_a_policy_that_breaks_its_contract_in_one_episode(self, tmp_path: Path, sampled: Sampled) -> None:
        """A reply that cannot be recorded is never written down, and ends its own episode."""

        async def hook(request: SampleRequest) -> Reply | None:
            bad = request.request_id.startswith("e000002")
            return Reply(sampled=sampled, finish=Finish.STOP) if bad else None

        await collect(tmp_path / "run", policy=Hooked(hook))
        await self.one_of_four(tmp_path / "run", FaultDomain.POLICY_SERVER)
        assert all(not record.steps for record in audited(tmp_path / "run").values() if record.task_seed == 2)

    async def test_a_task_that_cannot_be_made(self, tmp_path: Path) -> None:
        """It is on record as the task's fault, and not tried again: making is a function of the seed."""

        def make(draw: Variant) -> Task:
            if draw.seed == 2:
                raise ZeroDivisionError("no such sum")
            return sums(draw)

        tally = await collect(tmp_path / "run", suite=suite_of(make))
        assert (tally.done, tally.faulted, tally.attempts) == (3, 1, 4)
        await self.one_of_four(tmp_path / "run", FaultDomain.TASK)
        bad = audited(tmp_path / "run")[AttemptKey("e000002.0", 1)]
        assert bad.task_id == "sums/l1/000002"
        assert bad.scoring is Scoring.NOT_RUN
        assert bad.fault is not None
        assert "could not make seed 2" in bad.fault.message
        assert "no such sum" in bad.fault.message

    async def test_a_task_without_the_script(self, tmp_path: Path) -> None:
        def make(draw: Variant) -> Task:
            task = sums(draw)
            return replace(task, scripts={"reference": task.scripts["wrong"]}) if draw.seed == 2 else task

        await collect(tmp_path / "run", suite=suite_of(make), policy=player("wrong"))
        await self.one_of_four(tmp_path / "run", FaultDomain.TASK)

    async def test_a_rule_whose_checker_nobody_knows(self, tmp_path: Path) -> None:
        def make(draw: Variant) -> Task:
            task = sums(draw)
            if draw.seed != 2:
                return task
            spec = CheckerSpec(name="file-unchangd", arguments={"path": "x"})
            return replace(task, constraints=(rule("r", "what is 2 + 3", spec, stated_in=task.messages),))

        await collect(tmp_path / "run", suite=suite_of(make))
        await self.one_of_four(tmp_path / "run", FaultDomain.TASK)
        bad = audited(tmp_path / "run")[AttemptKey("e000002.0", 1)]
        assert bad.fault is not None
        assert "Did you mean 'file-unchanged'?" in bad.fault.message

    async def test_a_tool_that_raises(self, tmp_path: Path) -> None:
        """A tool that could not be run is the tool's fault; it names the tool and what it raised.

        It is not tried again: that would only choose among the policy's actions those that the tool survives.
        """
        tally = await collect(tmp_path / "run", suite=suite_of(_one_script("broken")))
        assert tally.attempts == 4
        await self.one_of_four(tmp_path / "run", FaultDomain.TOOL)
        bad = audited(tmp_path / "run")[AttemptKey("e000002.0", 1)]
        assert bad.fault is not None
        assert "'broken' raised RuntimeError: the tool's own bug" in bad.fault.message

    async def test_a_grader_that_raises(self, tmp_path: Path) -> None:
        """How the episode ended stands; it is not scored, which is not zero, and not sampled again to be gradable."""
        tally = await collect(tmp_path / "run", suite=suite_of(_one_grader(_raising)))
        assert tally.attempts == 4
        await self.one_of_four(tmp_path / "run", FaultDomain.GRADER, StopReason.FINAL_ANSWER)
        bad = audited(tmp_path / "run")[AttemptKey("e000002.0", 1)]
        assert (bad.scoring, bad.outcome, bad.done) == (Scoring.FAILED, Outcome.UNKNOWN, False)

    async def test_a_grader_that_hangs(self, tmp_path: Path) -> None:
        tally = await collect(tmp_path / "run", suite=suite_of(_one_grader(_hanging)))
        assert tally.attempts == 4, "a retry would select against answers that take long to grade"
        await self.one_of_four(tmp_path / "run", FaultDomain.GRADER, StopReason.FINAL_ANSWER)
        bad = audited(tmp_path / "run")[AttemptKey("e000002.0", 1)]
        assert bad.scoring is Scoring.TIMED_OUT
        assert bad.fault is not None
        assert "did not end within 0.05 s" in bad.fault.message

    async def test_a_task_that_needs_a_sandbox_where_there_is_none(self, tmp_path: Path) -> None:
        def make(draw: Variant) -> Task:
            return replace(sums(draw), needs_sandbox=draw.seed == 2)

        await collect(tmp_path / "run", suite=suite_of(make))
        await self.one_of_four(tmp_path / "run", FaultDomain.SANDBOX)


def _one_script(name: str):
    def make(draw: Variant) -> Task:
        task = sums(draw)
        return replace(task, scripts=task.scripts | {"reference": task.scripts[name]}) if draw.seed == 2 else task

    return make


def _one_grader(grader):
    def make(draw: Variant) -> Task:
        task = sums(draw)
        return replace(task, grader=grader, grade_timeout_s=0.05) if draw.seed == 2 else replace(task, grader=right)

    return make


async def _raising(state: GradeState) -> Grade:
    raise KeyError("answer")


async def _hanging(state: GradeState) -> Grade:
    await asyncio.Event().wait()
    return await right(state)


class TestRetries:
    async def test_a_fault_that_passes_is_tried_again_and_every_attempt_is_kept(self, tmp_path: Path) -> None:
        tries: dict[str, int] = {}

        async def hook(request: SampleRequest) -> None:
            episode, attempt, turn = request.request_id.rsplit(".", 2)
            if turn == "1" and int(attempt) < 3:
                tries[episode] = tries.get(episode, 0) + 1
                raise PolicyServerFault("lost")

        tally = await collect(tmp_path / "run", tasks=3, policy=Hooked(hook))
        assert (tally.done, tally.faulted, tally.attempts) == (3, 0, 9)
        assert set(tries.values()) == {2}
        for key, record in audited(tmp_path / "run").items():
            assert record.done == (key.attempt == 3)
            assert len(record.steps) == (2 if key.attempt == 3 else 1), "the first reply of a failed attempt is kept"

    @pytest.mark.parametrize("most", [1, 2, 5])
    async def test_attempts_are_bounded(self, tmp_path: Path, most: int) -> None:
        async def hook(request: SampleRequest) -> None:
            raise PolicyServerFault("lost")

        tally = await collect(tmp_path / "run", tasks=2, policy=Hooked(hook), options={"max_attempts": most})
        assert (tally.done, tally.faulted, tally.attempts) == (0, 2, 2 * most)
        assert not tally.complete
        assert len(audited(tmp_path / "run")) == 2 * most

    @pytest.mark.parametrize("script", ["wrong", "endless", "nothing"])
    async def test_a_bad_answer_is_never_tried_again(self, tmp_path: Path, script: str) -> None:
        suite = changed(on_text=OnText.OBSERVE) if script == "nothing" else suite_of()
        turns = {"budgets": (wall_clock(60), replace(wall_clock(4), kind="turns"))}  # type: ignore[arg-type]
        tally = await collect(tmp_path / "run", suite=suite, policy=player(script), episode=turns)
        assert (tally.done, tally.attempts) == (4, 4)
        assert {record.reward for record in audited(tmp_path / "run").values()} == {0.0}

    async def test_a_later_collection_goes_on_counting_attempts(self, tmp_path: Path) -> None:
        """An errored episode is never done: resuming tries it again, and only it."""
        broken = True

        async def hook(request: SampleRequest) -> None:
            if broken and request.request_id.startswith("e000001"):
                raise PolicyServerFault("lost")

        first = await collect(tmp_path / "run", policy=Hooked(hook), options={"max_attempts": 2})
        assert (first.done, first.faulted) == (3, 1)
        broken = False
        second = await collect(tmp_path / "run", policy=Hooked(hook))
        assert (second.done_before, second.done, second.attempts) == (3, 1, 1)
        attempts = [key.attempt for key in audited(tmp_path / "run") if key.episode_id == "e000001.0"]
        assert attempts == [1, 2, 3]

    async def test_a_complete_run_has_nothing_to_do(self, tmp_path: Path) -> None:
        await collect(tmp_path / "run")
        before = audited(tmp_path / "run")
        again = await collect(tmp_path / "run")
        assert (again.done_before, again.attempts, again.complete) == (4, 0, True)
        assert audited(tmp_path / "run") == before

    async def test_a_permanent_fault_of_the_policy_halts_the_run(self, tmp_path: Path) -> None:
        """What would meet every further episode as well is not tried on them."""
        asked: list[str] = []

        async def hook(request: SampleRequest) -> None:
            asked.append(request.request_id)
            if len(asked) > 4:
                raise PolicyServerFault.permanent("the model was taken down")

        tally = await collect(tmp_path / "run", tasks=50, policy=Hooked(hook), options={"concurrency": 2})
        assert tally.stopped_by == "the model was taken down"
        assert tally.planned == 50
        assert tally.done + tally.faulted == 50
        assert len(asked) <= 4 + 2
        assert len(audited(tmp_path / "run")) == tally.attempts < 6


class TestDeadlines:
    """Law 12: an episode ends within its limit plus grace; a timeout is known by the deadline object that fired."""

    @pytest.mark.parametrize("owner", list(BudgetOwner))
    async def test_a_tool_that_hangs_ends_with_the_budget_that_ran_out(
        self, tmp_path: Path, owner: BudgetOwner
    ) -> None:
        limit = wall_clock(0.2, owner)
        suite = changed(budgets=(limit,)) if owner is BudgetOwner.TASK else suite_of()
        episode = {} if owner is BudgetOwner.TASK else {"budgets": (limit,)}
        tally = await collect(tmp_path / "run", suite=suite, policy=player("hang"), tasks=2, episode=episode)
        assert tally.done == 2, "an ending with a reason of its own is no fault"
        task = owner is BudgetOwner.TASK
        for record in audited(tmp_path / "run").values():
            assert record.reason is (StopReason.TASK_BUDGET if task else StopReason.COLLECTOR_BUDGET)
            assert record.budget == f"{owner}.wall_clock"
            assert (record.terminated, record.truncated) == (task, not task)
            assert record.fault is None
            assert record.scoring is Scoring.SCORED
            assert record.reward == 0.0
            assert limit.limit <= record.elapsed_s <= limit.limit + EpisodeOptions().grace_s

    async def test_tools_that_take_longer_than_tools_may_are_at_fault(self, tmp_path: Path) -> None:
        """Another deadline than the episode's fired: the time that one action's tools have."""
        await collect(
            tmp_path / "run",
            tasks=1,
            policy=player("hang"),
            episode={"tool_timeout_s": 0.05},
            options={"max_attempts": 1},
        )
        (record,) = audited(tmp_path / "run").values()
        assert (record.reason, record.fault_domain) == (StopReason.FAULT, FaultDomain.TOOL)
        assert record.fault is not None
        assert "the tools of one action" in record.fault.message

    async def test_a_tools_own_limit_is_an_observation(self, tmp_path: Path) -> None:
        await collect(tmp_path / "run", tasks=1, policy=player("slow"))
        (record,) = audited(tmp_path / "run").values()
        assert (record.done, record.reward) == (True, 1.0)
        assert record.steps[0].results[0].status is CallStatus.TIMEOUT
        assert "0.05 s" in record.steps[0].observation[0].text

    async def test_a_foreign_timeout_is_not_taken_for_ours(self, tmp_path: Path) -> None:
        """A ``TimeoutError`` of whoever else is what it is: an exception of its place, no budget."""

        async def hook(request: SampleRequest) -> None:
            raise TimeoutError("a database somewhere")

        await collect(tmp_path / "run", tasks=1, policy=Hooked(hook), options={"max_attempts": 1})
        (record,) = audited(tmp_path / "run").values()
        assert (record.reason, record.budget, record.fault_domain) == (StopReason.FAULT, None, FaultDomain.HARNESS)


class TestDisk:
    async def test_a_journal_that_cannot_grow_stops_the_run_with_one_clear_fault(self, tmp_path: Path) -> None:
        """The fault is raised as it is, not wrapped in a group; what was acknowledged stays readable and sound."""
        with pytest.raises(HarnessFault, match=r"bytes free.*Free space and resume the run"):
            await collect(tmp_path / "run", tasks=60, group_size=2, max_bytes=120_000)
        records = audited(tmp_path / "run")
        done = [record for record in records.values() if record.done]
        assert done
        tally = await collect(tmp_path / "run", tasks=60, group_size=2)
        assert tally.complete
        assert tally.done_before == len({record.episode_id for record in done})

    async def test_a_worker_that_ends_without_a_word_is_told_of(self, tmp_path: Path) -> None:
        """A stray cancellation ends a task group's task quietly; what it had left to do must not be passed over."""

        class Stray(InMemoryStore):
            async def append(self, key: AttemptKey, *facts: Fact) -> None:
                if key.episode_id >= "e000002":
                    raise asyncio.CancelledError
                await super().append(key, *facts)

        with pytest.raises(HarnessFault, match=r"4 of 6 episodes were neither done nor failed"):
            await collect(tmp_path / "run", tasks=6, parts={"writer": Stray()}, options={"concurrency": 1})

    async def test_nothing_to_do_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="at least one task"):
            await collect(tmp_path / "run", tasks=0)


async def test_the_collector_can_be_opened_and_left(tmp_path: Path) -> None:
    """Opening starts nothing."""
    async with opened(tmp_path / "run", Setup()):
        pass
    assert audited(tmp_path / "run") == {}
