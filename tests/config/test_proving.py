"""What every episode would fail for is refused before a run begins: hosts that a sandbox cannot give, and servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agentenv import open_run
from agentenv.config import environments
from agentenv.config import run as run_module
from agentenv.config.environments import EnvConfig, open_environment
from agentenv.config.proving import prove_tasks
from agentenv.config.run_config import PolicyConfig, RunConfig
from agentenv.config.sandboxes import choose_provider
from agentenv.config.survey import survey_of
from agentenv.core.deadline import Deadline
from agentenv.core.tool import Result, ToolContext
from agentenv.errors import ConfigError, SandboxFault, ToolFault
from agentenv.toolkit.function_tool import tool
from agentenv.toolkit.suite import SeededSuite, Task, Variant, messages, scripted


@tool
def plain() -> str:
    """Do one thing."""
    return "one"


class Served:
    """A tool that a server stands behind; the server may be gone."""

    needs_sandbox = parallel = False

    def __init__(self, name: str, *, gone: bool = False, retryable: bool = True) -> None:
        self.spec = plain.spec
        self.sha256 = name
        self.opened = 0
        self._gone = gone
        self._retryable = retryable

    @property
    def server(self) -> dict[str, str]:
        return {"name": self.sha256, "sha256": self.sha256, "tool": "plain"}

    async def open(self, context: ToolContext, deadline: Deadline) -> None:
        del context, deadline
        self.opened += 1
        if self._gone:
            fault = ToolFault(f"MCP server {self.sha256!r}: nobody there")
            fault.retryable = self._retryable
            raise fault

    async def call(self, arguments: dict[str, Any], context: ToolContext, deadline: Deadline) -> Result:
        return await plain.call(arguments, context, deadline)


def task_with(n: int, **fields: Any) -> Task:
    return Task(id=f"t{n}", messages=messages("Go on."), scripts={"reference": scripted("done")}, **fields)


def suite_of(*changes: dict[str, Any]) -> SeededSuite:
    """A task for each of the changes, in order."""

    def make(draw: Variant) -> Task:
        return task_with(draw.seed, **changes[draw.seed])

    return SeededSuite("proven", len(changes), make=make)


@asynccontextmanager
async def opened(
    door: str, suite: SeededSuite, out: Path, patch: pytest.MonkeyPatch, sandbox: str
) -> AsyncGenerator[None]:
    """Open a collection or an environment of the suite."""
    for module in (run_module, environments):
        patch.setattr(module, "load_suite", lambda _: suite)
    run = RunConfig(suite="own", policy=PolicyConfig(kind="scripted"), tasks=suite.size, sandbox=sandbox)
    if door == "collect":
        async with open_run(run, out):
            yield
    else:
        async with open_environment(EnvConfig(run=run, out=out)):
            yield


DOORS = pytest.mark.parametrize("door", ["collect", "environment"])


@DOORS
async def test_hosts_that_a_weak_sandbox_cannot_give_are_refused_at_once(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the task named, and nothing made."""
    suite = suite_of({}, {"needs_sandbox": True}, {"needs_sandbox": True, "network": ("example.org",)})
    with pytest.raises(SandboxFault, match=r"^Task 't2'.*example\.org") as caught:
        async with opened(door, suite, tmp_path / "run", monkeypatch, "none"):
            pass
    assert "the network is open" in str(caught.value)
    assert "--sandbox bwrap" in str(caught.value)
    assert not caught.value.retryable
    assert not (tmp_path / "run").exists()


@DOORS
@pytest.mark.parametrize("retryable", [True, False])
async def test_a_server_that_does_not_start_is_refused_at_once(
    door: str, retryable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What to do is said where the fault does not say it itself."""
    suite = suite_of({}, {"tools": (Served("gone", gone=True, retryable=retryable),)})
    with pytest.raises(ConfigError, match=r"^Task 't1': MCP server 'gone': nobody there") as caught:
        async with opened(door, suite, tmp_path / "run", monkeypatch, "auto"):
            pass
    assert ("must be in the sandbox" in str(caught.value)) is retryable
    assert not (tmp_path / "run").exists()


async def test_each_server_and_each_list_of_hosts_is_tried_once() -> None:
    one, other = Served("one"), Served("other")
    host = {"needs_sandbox": True, "network": ("example.org",)}
    changes = ({"tools": (one,)}, {"tools": (one,)}, {"tools": (other,)}, host, host, {"needs_sandbox": True})
    found = survey_of(task_with(n, **fields) for n, fields in enumerate(changes))
    assert [task.id for task in found.to_prove] == ["t0", "t2", "t3"]
    async with await choose_provider("auto") as provider:
        await prove_tasks(found.to_prove, provider)
    assert (one.opened, other.opened) == (1, 1)
