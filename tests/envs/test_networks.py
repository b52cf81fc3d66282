"""What a task's sandbox may reach: handed to the provider, measured from inside, recorded, shown.

Promises: the measurement is made once per provider and list of hosts; a kind of sandbox that does not hold commands to
the task's hosts is refused when the episode starts; what could not be measured is said to be unknown.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from agentenv.cli.episode_view import print_episode
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import NetworkState, Sandbox, SandboxProvider, SandboxSpec
from agentenv.core.task import Task
from agentenv.envs.networks import NetworkMeasurements
from agentenv.errors import ConfigError, SandboxFault
from agentenv.records.axes import FaultDomain, NetworkAccess
from agentenv.records.episode import EpisodeRecord
from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.sandboxes.unconfined import UnconfinedProvider
from agentenv.testing.sandboxes import InMemoryProvider
from agentenv.toolkit.suite import Variant, check_task

from tests.rollout.kit import audited, collect, renderer, suite_of, sums

HOSTS = ("example.org", "*.example.com:8443")


class Measured(InMemoryProvider):
    """Sandboxes in memory that count how often they are measured, and find what they are told to."""

    def __init__(self, *finds: NetworkAccess | None) -> None:
        super().__init__()
        self.finds = list(finds)
        self.measured = 0

    async def lease(self, spec: SandboxSpec, deadline: Deadline) -> Sandbox:
        sandbox = await super().lease(spec, deadline)

        async def network_state() -> NetworkState:
            self.measured += 1
            await asyncio.sleep(0)
            found = self.finds.pop(0) if len(self.finds) > 1 else self.finds[0]
            if found is None:
                raise SandboxFault("the measurement was prevented")
            return NetworkState(access=found, interfaces=("eth0",), detail="as told")

        sandbox.network_state = network_state  # type: ignore[method-assign] - of this one fake
        return sandbox


def asking(draw: Variant) -> Task:
    return replace(sums(draw), network=HOSTS, needs_sandbox=True)


def contained(draw: Variant) -> Task:
    return replace(sums(draw), needs_sandbox=True)


async def played(out: Path, provider: SandboxProvider, make=asking, **setup: object) -> list[EpisodeRecord]:
    async with provider:
        await collect(out, suite=suite_of(make), provider=provider, **setup)
    return list(audited(out).values())


async def test_the_hosts_of_a_task_reach_the_provider_and_the_record(tmp_path: Path) -> None:
    provider = InMemoryProvider()
    (record,) = await played(tmp_path / "run", provider, tasks=1)
    assert record.fault is None
    assert record.network is not None
    assert (record.network.asked, record.network.access) == (HOSTS, NetworkAccess.ALLOW_LIST)


async def test_the_first_sandbox_is_measured_and_the_others_are_recorded_with_it(tmp_path: Path) -> None:
    """Law 12's cost: episodes that start at once wait for one measurement, and pay for none of their own."""
    provider = Measured(NetworkAccess.ALLOW_LIST)
    records = await played(tmp_path / "run", provider, tasks=6)
    reports = [record.network for record in records]
    assert provider.measured == 1
    assert [(report.access, report.detail) for report in reports if report] == [
        (NetworkAccess.ALLOW_LIST, "as told")
    ] * 6


async def test_each_list_of_hosts_is_measured() -> None:
    provider = Measured(NetworkAccess.ALLOW_LIST)
    known = NetworkMeasurements()
    for network in (HOSTS, (), HOSTS, ("example.org",), ()):
        await known.of(await provider.lease(SandboxSpec(network=network), Deadline("test")), network)
    assert provider.measured == 3


@pytest.mark.parametrize("found", [NetworkAccess.NONE, NetworkAccess.OPEN])
async def test_a_kind_that_does_not_keep_to_the_hosts_is_refused_at_the_start(
    tmp_path: Path, found: NetworkAccess
) -> None:
    (record,) = await played(tmp_path / "run", Measured(found), tasks=1)
    assert record.fault is not None
    assert (record.fault.domain, record.fault.retryable) == (FaultDomain.SANDBOX, False)
    assert f"in this kind of sandbox the network is {found} (as told)" in record.fault.message
    assert "--sandbox bwrap" in record.fault.message
    assert record.steps == ()


async def test_the_unconfined_kind_is_refused_for_real_and_recorded_as_open_where_nothing_is_asked(
    tmp_path: Path,
) -> None:
    (refused,) = await played(tmp_path / "asking", UnconfinedProvider(), tasks=1)
    assert refused.fault is not None
    assert "the network is open" in refused.fault.message
    (record,) = await played(tmp_path / "run", UnconfinedProvider(), contained, tasks=1)
    assert record.fault is None
    assert record.network is not None
    assert record.network.access is NetworkAccess.OPEN


async def test_a_real_sandbox_is_measured_from_inside(tmp_path: Path) -> None:
    (record,) = await played(tmp_path / "run", BwrapProvider(), contained, tasks=1)
    assert record.network is not None
    assert (record.network.access, record.network.interfaces) == (NetworkAccess.NONE, ())
    assert "a way to 192.0.2.1: no" in record.network.detail
    (listed,) = await played(tmp_path / "listed", BwrapProvider(), asking, tasks=1)
    assert listed.network is not None
    assert listed.network.access is NetworkAccess.ALLOW_LIST


async def test_what_could_not_be_measured_is_unknown_and_tried_again(tmp_path: Path) -> None:
    provider = Measured(None, NetworkAccess.NONE)
    records = await played(tmp_path / "run", provider, contained, tasks=3, options={"concurrency": 1})
    reports = [record.network for record in records]
    assert [report.access for report in reports if report] == [None, NetworkAccess.NONE, NetworkAccess.NONE]
    assert reports[0] is not None
    assert "the measurement was prevented" in reports[0].detail
    assert provider.measured == 2


async def test_an_unknown_network_is_no_list_but_may_be_one_next_time(tmp_path: Path) -> None:
    attempts = await played(
        tmp_path / "run", Measured(None, NetworkAccess.ALLOW_LIST), tasks=1, options={"max_attempts": 2}
    )
    assert [record.fault is None for record in attempts] == [False, True]


async def test_an_episode_without_a_sandbox_has_no_network_on_record(tmp_path: Path) -> None:
    provider = Measured(NetworkAccess.NONE)
    (record,) = await played(tmp_path / "run", provider, sums, tasks=1)
    assert record.network is None
    assert provider.measured == 0


async def test_show_says_what_the_sandbox_could_reach(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (record,) = await played(tmp_path / "run", Measured(NetworkAccess.ALLOW_LIST), tasks=1)
    print_episode(record, renderer(), tokens=False)
    shown = capsys.readouterr().out
    assert "network of the sandbox: allow-list; the task names example.org, *.example.com:8443 (as told)" in shown


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (("http://example.org",), "no host of an allow-list"),
        ("example.org", "must be a tuple of hosts"),
        ((1,), "must be a tuple of hosts"),
    ],
)
def test_what_is_no_host_is_refused_with_the_task(network: object, says: str) -> None:
    task = suite_of(contained).task(0)
    with pytest.raises(ConfigError, match=says):
        check_task(replace(task, network=network))


def test_hosts_without_a_sandbox_are_refused() -> None:
    with pytest.raises(ConfigError, match="set needs_sandbox=True"):
        check_task(replace(suite_of(sums).task(0), network=HOSTS))
