"""What a run says of its tasks is true of each of them, whichever task shows it first (law 13)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agentenv import open_run, stored_run
from agentenv.config import environments
from agentenv.config import run as run_module
from agentenv.config.environments import EnvConfig, open_environment
from agentenv.config.run_config import PolicyConfig, RunConfig
from agentenv.config.survey import survey_of, survey_run
from agentenv.core.task import Suite
from agentenv.errors import ConfigError
from agentenv.records.axes import BudgetKind, BudgetOwner
from agentenv.records.budgets import Budget
from agentenv.toolkit.function_tool import tool
from agentenv.toolkit.suite import SeededSuite, Task, Variant, messages, scripted

N = 12


@tool
def early() -> str:
    """Do one thing."""
    return "one"


@tool(name="early")
def other_early() -> str:
    """Do another thing under the same name."""
    return "another"


@tool(name="run")
def late() -> str:
    """Do a third thing."""
    return "three"


COST = Budget(kind=BudgetKind.COST, limit=1.0, owner=BudgetOwner.TASK)
CHANGES: dict[str, dict[str, Any]] = {
    "none": {},
    "a file": {"files": {"a.txt": b"x"}},
    "other tools": {"tools": (other_early, late)},
    "one other tool": {"tools": (other_early,)},
    "one more tool": {"tools": (early, late)},
    "a cost budget": {"budgets": (COST,)},
    "no messages": {"messages": ()},
}


def suite_with(change: str) -> SeededSuite:
    """Make plain tasks, with a change in the last of them alone."""

    def make(draw: Variant) -> Task:
        task = Task(
            id=draw.id,
            messages=messages(f"Task {draw.seed}"),
            tools=(early,),
            scripts={"reference": scripted("done")},
        )
        return replace(task, **CHANGES[change]) if draw.seed == N - 1 else task

    return SeededSuite("mixed", N, make=make)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Any:
    def give(suite: Suite) -> Suite:
        for module in (run_module, environments):
            monkeypatch.setattr(module, "load_suite", lambda _: suite)
        return suite

    return give


def config(**changes: Any) -> RunConfig:
    return RunConfig(**{"suite": "mixed", "policy": PolicyConfig(kind="scripted"), "tasks": N, **changes})


async def test_a_sandbox_that_only_the_last_task_needs_is_there(loads: Any, tmp_path: Path) -> None:
    """Its episode is played like any other, and the manifest says in what."""
    loads(suite_with("a file"))
    async with open_run(config(), tmp_path / "run") as run:
        assert (await run.collect()).complete
        assert run.manifest["sandbox"] is not None
    with stored_run(tmp_path / "run") as stored:
        assert {record.fault for record in stored.records()} == {None}


async def test_a_run_of_the_others_opens_none(loads: Any, tmp_path: Path) -> None:
    loads(suite_with("a file"))
    async with open_run(config(tasks=N - 1), tmp_path / "run") as run:
        assert run.manifest["sandbox"] is None


async def test_the_manifest_has_the_tools_of_every_task(loads: Any, tmp_path: Path) -> None:
    """Two tools of one name in two tasks are two hashes; a tool may be called like anything."""
    loads(suite_with("other tools"))
    async with open_run(config(), tmp_path / "run") as run:
        assert run.manifest["suite"]["tools"] == {
            "early": sorted([early.sha256, other_early.sha256]),
            "run": [late.sha256],
        }
    for changed in ("one other tool", "one more tool"):
        loads(suite_with(changed))
        with pytest.raises(ConfigError, match=r"suite\.tools\."):
            async with open_run(config(), tmp_path / "run", resume=True):
                raise AssertionError("it was opened")


async def test_a_cost_budget_of_the_last_task_needs_prices(loads: Any, tmp_path: Path) -> None:
    loads(suite_with("a cost budget"))
    with pytest.raises(ConfigError, match="--usd-per-million-prompt-tokens"):
        async with open_run(config(), tmp_path / "run"):
            raise AssertionError("it was opened")
    assert not (tmp_path / "run").exists()
    priced = PolicyConfig(kind="scripted", usd_per_million_prompt_tokens=1.0)
    async with open_run(config(policy=priced), tmp_path / "run") as run:
        assert (await run.collect()).complete


async def test_the_environments_door_surveys_too(loads: Any) -> None:
    loads(suite_with("a file"))
    async with open_environment(EnvConfig(run=config())) as env:
        await env.reset(seed=N - 1)


async def test_a_task_that_cannot_be_made_is_left_to_its_episode(loads: Any, tmp_path: Path) -> None:
    loads(suite_with("no messages"))
    async with open_run(config(), tmp_path / "run") as run:
        tally = await run.collect()
    assert (tally.done, tally.faulted) == (N - 1, 1)


@pytest.mark.parametrize(("tasks", "made"), [(1, 1), (5, 5), (N, N), (1000, N)])
async def test_each_variant_is_made_once(tasks: int, made: int) -> None:
    """However many tasks a run has, and from whichever seed on."""
    seeds: list[int] = []
    inner = suite_with("none")

    def make(draw: Variant) -> Task:
        seeds.append(draw.seed)
        return inner.make(draw)

    survey = await survey_run(SeededSuite("mixed", N, make=make), seed=7, tasks=tasks, level=1)
    assert sorted(seeds) == sorted({(7 + n) % N for n in range(tasks)})
    assert len(seeds) == made
    assert survey == survey_of(inner.task(7 + n) for n in range(made))


async def test_it_can_be_cancelled() -> None:
    """Ctrl-C is heard between tasks."""
    big = SeededSuite("mixed", 10**6, make=suite_with("none").make)
    work = asyncio.ensure_future(survey_run(big, seed=0, tasks=10**6, level=1))
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
