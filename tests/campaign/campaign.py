"""The campaign: a collection of episodes that make trouble, and what is found about each of them and afterwards."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentenv.core.sandbox import SandboxProvider
from agentenv.engine.audit import audit
from agentenv.records.axes import FaultDomain, StopReason
from agentenv.records.episode import EpisodeRecord
from agentenv.records.facts import EpisodeEnded
from agentenv.rollout.schedule import Slot
from agentenv.storage.run_folder import RunFolder

from tests.campaign.remains import Looking, adopting, bury
from tests.campaign.suite import GRADE_TIMEOUT_S, LIMITS, campaign_suite
from tests.campaign.troubles import TROUBLES, Outcome, Trouble
from tests.rollout.kit import Setup, opened

GRACE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What is to be done."""

    provider: SandboxProvider
    """Closed by the campaign: what is left afterwards is its doing."""
    root: Path
    """An empty folder, in which the provider makes its workspaces."""
    out: Path
    """Of the run; must not exist."""
    episodes: int
    concurrency: int = 8
    seed: int = 0
    """Of the episodes; tasks are the first ones of the suite."""
    kinds: Sequence[str] = tuple(TROUBLES)
    allowance_s: float = 0.0
    """For the start of a sandbox, added to the limit of every episode."""
    engine: str | None = None
    """Address of the Docker Engine, where it makes the sandboxes."""


@dataclass(slots=True)
class Account:
    """What came of the episodes of one kind."""

    episodes: int = 0
    outcomes: dict[Outcome, int] = field(default_factory=dict[Outcome, int])
    longest_s: float = 0.0
    over_s: float = 0.0
    """The most that one was beyond its limit."""
    wrong: list[str] = field(default_factory=list[str])
    """What should not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found."""

    accounts: Mapping[str, Account]
    left: Mapping[str, list[str]]
    """Sort to what was left."""

    @property
    def wrong(self) -> list[str]:
        """Everything that should not be."""
        said = [f"{kind}: {what}" for kind, account in self.accounts.items() for what in account.wrong]
        return said + [f"left, of {sort}: {thing}" for sort, things in self.left.items() for thing in things]


class _Clock:
    """Takes the time of whole attempts, from before the lease to after the end of the sandbox."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self.took_s: dict[str, float] = {}

    def began(self, slot: Slot, attempt: int) -> None:
        self._began[slot.episode_id] = time.monotonic()

    def replied(self, reply: object) -> None:
        """Nothing."""

    def ended(self, slot: Slot, ending: EpisodeEnded | None) -> None:
        self.took_s[slot.episode_id] = time.monotonic() - self._began[slot.episode_id]


async def run(campaign: Campaign) -> Report:
    """Collect, close everything, and look at what came of it and what is left."""
    token = f"campaign-{secrets.token_hex(8)}"
    looking = Looking(token=token, root=campaign.root, blobs=campaign.out / "blobs", engine=campaign.engine)
    clock = _Clock()
    with adopting():
        before, tasks = await asyncio.to_thread(looking.look), asyncio.all_tasks()
        async with campaign.provider:
            await _collect(campaign, token, clock)
        bury(before)
        left = (await asyncio.to_thread(looking.look)).beyond(before)
    if stray := asyncio.all_tasks() - tasks:
        left["tasks"] = sorted(map(repr, stray))
    return Report(accounts=_judged(campaign, clock), left=left)


async def _collect(campaign: Campaign, token: str, clock: _Clock) -> None:
    setup = Setup(
        suite=campaign_suite(campaign.kinds, token, allowance_s=campaign.allowance_s),
        tasks=campaign.episodes,
        seed=campaign.seed,
        provider=campaign.provider,
        options={"concurrency": campaign.concurrency, "max_attempts": 1},
        episode={"limits": LIMITS, "grace_s": GRACE_S, "budgets": ()},
        observer=clock,
    )
    async with opened(campaign.out, setup) as collection:
        tally = await collection()
    assert tally.unclosed == [], tally.unclosed


def _judged(campaign: Campaign, clock: _Clock) -> dict[str, Account]:
    accounts = {kind: Account() for kind in campaign.kinds}
    with RunFolder.open(campaign.out).reader() as reader:
        for key in reader.attempts():
            record, findings = audit(reader.facts(key))
            assert record is not None, findings
            kind = campaign.kinds[record.task_seed % len(campaign.kinds)]
            wrong = [f"{key.episode_id}: {finding}" for finding in findings]
            took_s, limit_s = clock.took_s[key.episode_id], TROUBLES[kind].limit_s + campaign.allowance_s
            _take(accounts[kind], TROUBLES[kind], record, took_s, limit_s)
            accounts[kind].wrong += wrong
    missing = campaign.episodes - sum(account.episodes for account in accounts.values())
    if missing:
        accounts[campaign.kinds[0]].wrong.append(f"{missing} episodes are not on record")
    return accounts


def _take(account: Account, trouble: Trouble, record: EpisodeRecord, took_s: float, limit_s: float) -> None:
    """Enter one episode, and what is wrong with it."""
    over_s = took_s - limit_s
    account.episodes += 1
    account.longest_s = max(account.longest_s, took_s)
    account.over_s = max(account.over_s, over_s)
    outcome = outcome_of(record)
    if outcome is not None:
        account.outcomes[outcome] = account.outcomes.get(outcome, 0) + 1
    wrong: list[str] = []
    if outcome not in trouble.comes:
        wrong.append(f"came to {outcome or _described(record)}, expected {' or '.join(sorted(trouble.comes))}")
    if over_s > GRADE_TIMEOUT_S + GRACE_S:
        wrong.append(f"took {took_s:.1f} s, its limit is {limit_s:g} s")
    account.wrong += [f"{record.episode_id}: {what}" for what in wrong + _of_the_call(trouble, record)]


def outcome_of(record: EpisodeRecord) -> Outcome | None:
    """Say what became of an episode; None if it is nothing that should become of any."""
    if record.fault is not None:
        return Outcome.LOST if record.fault.domain is FaultDomain.SANDBOX and record.reward is None else None
    if record.reason is StopReason.TASK_BUDGET and record.budget == "task.wall_clock":
        return Outcome.CUT
    whole = record.reason is StopReason.FINAL_ANSWER and record.reward == 1.0
    return Outcome.WHOLE if whole else None


def _of_the_call(trouble: Trouble, record: EpisodeRecord) -> list[str]:
    """Look at what the first call that made trouble came to: the second of all."""
    if trouble.statuses is None or len(record.steps) < 2 or not record.steps[1].results:
        return []
    result = record.steps[1].results[0]
    wrong: list[str] = []
    if result.status not in trouble.statuses:
        wrong.append(f"the call came to {result.status}: {result.text[-300:]!r}")
    kept = 0 if result.full_output is None else result.full_output.size_bytes
    if trouble.output_bytes and kept != trouble.output_bytes:
        wrong.append(f"{kept:,} bytes of output are kept, {trouble.output_bytes:,} were written")
    return wrong


def _described(record: EpisodeRecord) -> str:
    shown = [result.text[-200:] for step in record.steps for result in step.results]
    return (
        f"{record.reason} ({record.budget}), fault {record.fault}, scoring {record.scoring}, reward {record.reward}, "
        f"{[each.detail for each in record.rewards]}, {shown[1:]}"
    )
