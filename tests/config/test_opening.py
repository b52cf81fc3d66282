"""Opening a run: what cannot work is refused before anything is made, and what was opened is closed."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
from agentenv import open_run, stored_run
from agentenv.config.policies import POLICIES, Acting
from agentenv.config.run_config import DEFAULT_WALL_CLOCK_S, PolicyConfig, RunConfig, parse_budgets
from agentenv.config.sandboxes import AUTO, choose_provider
from agentenv.core.policy import PolicyIdentity
from agentenv.errors import ConfigError, HarnessFault, PolicyServerFault, RunInUse, SandboxFault, UnknownNameError
from agentenv.policies.scripted import ScriptedPolicy
from agentenv.records.axes import BudgetKind
from agentenv.rendering.loading import byte_renderer
from agentenv.sandboxes import providers
from agentenv.sandboxes.bwrap import BwrapProvider

SCRIPTED = PolicyConfig(kind="scripted")


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As on a machine that has neither bubblewrap nor namespaces."""
    monkeypatch.setattr(providers, "PROVIDERS", dict.fromkeys(AUTO, missing_bubblewrap(tmp_path_factory)))


def missing_bubblewrap(tmp_path_factory: pytest.TempPathFactory) -> partial[BwrapProvider]:
    programs = tmp_path_factory.mktemp("programs")
    if (setpriv := shutil.which("setpriv")) is not None:
        (programs / "setpriv").symlink_to(setpriv)
    return partial(BwrapProvider, search_path=str(programs))


class Watched(ScriptedPolicy):
    """Remembers what was asked of it."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__(byte_renderer())
        self.fails = fails
        self.log: list[str] = []

    async def start(self) -> PolicyIdentity:
        self.log.append("start")
        if self.fails:
            raise PolicyServerFault("nobody there")
        return await super().start()

    async def aclose(self) -> None:
        self.log.append("aclose")


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    policy = Watched(fails=False)

    async def make(config: PolicyConfig, rest: str) -> Acting:
        policy.fails = rest == "fails"
        return Acting(policy=policy, renderer=policy.renderer, source="builtin:bytes")

    monkeypatch.setitem(POLICIES, "watched", ("for tests", make))  # type: ignore[arg-type]
    return policy


async def test_a_run_is_collected_and_read_in_a_few_lines(tmp_path: Path) -> None:
    async with open_run(RunConfig(suite="arithmetic", policy=SCRIPTED, tasks=2), tmp_path / "run") as run:
        tally = await run.collect()
    assert tally.complete
    with stored_run(tmp_path / "run") as stored:
        assert [record.reward for record in stored.records()] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"suite": "arithmetik"}, UnknownNameError),
        ({"compressor": "nothing"}, UnknownNameError),
        ({"sandbox": "nothing"}, UnknownNameError),
        ({"level": 77}, ConfigError),
        ({"shots": 77}, ConfigError),
    ],
)
async def test_what_is_refused_leaves_no_folder_and_closes_the_policy(
    tmp_path: Path, watched: Watched, changes: dict[str, object], error: type[Exception]
) -> None:
    config = RunConfig(**{"suite": "arithmetic", "policy": PolicyConfig(kind="watched"), **changes})  # type: ignore[arg-type]
    with pytest.raises(error):
        async with open_run(config, tmp_path / "run"):
            raise AssertionError("it was opened")
    assert not (tmp_path / "run").exists()
    assert watched.log in ([], ["start", "aclose"])


async def test_a_policy_that_cannot_start_is_closed(tmp_path: Path, watched: Watched) -> None:
    config = RunConfig(suite="arithmetic", policy=PolicyConfig(kind="watched:fails"))
    with pytest.raises(PolicyServerFault):
        async with open_run(config, tmp_path / "run"):
            raise AssertionError("it was opened")
    assert watched.log == ["start", "aclose"]
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_bubblewrap")
async def test_without_bubblewrap_a_suite_that_needs_it_is_refused_with_the_remedy(
    tmp_path: Path, watched: Watched
) -> None:
    """And one that needs none is collected."""
    config = RunConfig(suite="repair", policy=PolicyConfig(kind="watched"))
    with pytest.raises(SandboxFault, match=r"No sandbox works here.*apt-get install bubblewrap"):
        async with open_run(config, tmp_path / "run"):
            raise AssertionError("it was opened")
    assert watched.log == ["start", "aclose"]
    assert not (tmp_path / "run").exists()
    async with open_run(RunConfig(suite="arithmetic", policy=SCRIPTED, tasks=1), tmp_path / "other") as run:
        assert (await run.collect()).complete


async def test_a_folder_in_use_is_said_to_be_and_everything_else_closed(tmp_path: Path, watched: Watched) -> None:
    config = RunConfig(suite="arithmetic", policy=SCRIPTED, tasks=1)
    async with open_run(config, tmp_path / "run") as run:
        with pytest.raises(RunInUse, match="is being written by process"):
            async with open_run(RunConfig(suite="arithmetic", policy=PolicyConfig(kind="watched")), tmp_path / "run"):
                raise AssertionError("it was opened")
        assert watched.log == ["start", "aclose"]
        assert (await run.collect()).complete


async def test_a_provider_by_name() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'bwrap'"):
        await choose_provider("bwarp")
    async with await choose_provider("bwrap") as provider:
        assert provider.name == "bwrap"


@pytest.mark.usefixtures("no_bubblewrap")
async def test_no_provider_that_works() -> None:
    with pytest.raises(SandboxFault) as caught:
        await choose_provider("auto")
    assert not caught.value.retryable
    assert str(caught.value).count("apt-get install bubblewrap") == len(AUTO)


async def test_namespaces_do_where_bubblewrap_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A machine without it needs no package at all; the weak kinds are never chosen."""
    missing = missing_bubblewrap(tmp_path_factory)
    monkeypatch.setattr(providers, "PROVIDERS", {**providers.PROVIDERS, "bwrap": missing})
    async with await choose_provider("auto") as provider:
        assert provider.name == "namespaces"
    assert AUTO == ("bwrap", "namespaces")


class TestBudgets:
    def test_every_run_has_a_limit_of_time(self) -> None:
        """The collector's own where the user gave none: every episode ends."""
        (own,) = RunConfig(suite="x").collector_budgets
        assert (own.kind, own.limit) == (BudgetKind.WALL_CLOCK, DEFAULT_WALL_CLOCK_S)
        (given,) = RunConfig(suite="x", budgets=parse_budgets(["wall_clock=5"])).collector_budgets
        assert given.limit == 5.0

    def test_kinds_and_limits_are_read(self) -> None:
        names = [f"{kind}=4" for kind in BudgetKind]
        assert [budget.kind for budget in parse_budgets(names)] == list(BudgetKind)

    @pytest.mark.parametrize("spec", ["turns=0", "turns=-1", "cost=nan", "wall_clock=inf", "turns=1.5", "turns"])
    def test_what_means_nothing_is_refused(self, spec: str) -> None:
        with pytest.raises(ConfigError):
            parse_budgets([spec])


async def test_a_journal_that_cannot_be_written_is_raised_bare(tmp_path: Path) -> None:
    """The fault of the disk comes out of `collect` as itself, not in a group."""
    async with open_run(RunConfig(suite="arithmetic", policy=SCRIPTED, tasks=40), tmp_path / "run") as run:
        writer = run.collector._parts.writer
        writer._file._connection.execute("PRAGMA max_page_count = 20").fetchone()
        with pytest.raises(HarnessFault, match="Free space and resume the run"):
            await run.collect()
