"""What the tasks of a run need, found by making each of them once: the first says nothing of the others.

A task is made again when its episode begins. Making one takes a fraction of a millisecond to some ten milliseconds,
and no run has more different ones than its suite has variants.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agentenv.config.mcp import ServedSuite
from agentenv.core.boundary import is_its_own
from agentenv.core.task import Suite, Task, needs_sandbox
from agentenv.core.tool import ServedTool
from agentenv.records.axes import BudgetKind

_AT_A_TIME = 32
"""Tasks between two chances for the event loop: Ctrl-C must be heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a set of tasks needs; goes into the manifest (law 13)."""

    sha256: str
    """Over the content hashes of the tasks, in order."""
    tools: dict[str, list[str]]
    """Name of every tool to the content hashes it has, sorted: mostly one."""
    servers: list[dict[str, Any]]
    """Every server that stands behind tools, once: which it is, and its ``tools``, name shown to the server's own."""
    needs_sandbox: bool
    has_cost_budget: bool
    to_prove: tuple[Task, ...]
    """The first task of each list of hosts, and of each server of the suite's own that stands behind tools."""


class _Seen:
    """What the tasks so far need; of them, only those to prove are kept."""

    def __init__(self, described: Iterable[str] = ()) -> None:
        """Take the hashes of servers that were started already, to be described."""
        self._proven = set(described)
        self._to_prove: list[Task] = []
        self._networks: set[tuple[str, ...]] = {()}
        self._digest = hashlib.sha256()
        self._tools: dict[str, set[str]] = {}
        self._servers: dict[str, dict[str, Any]] = {}
        self._sandbox = False
        self._cost = False

    def add(self, task: Task) -> None:
        self._digest.update(task.content_sha256.encode())
        self._sandbox = self._sandbox or needs_sandbox(task)
        self._cost = self._cost or any(budget.kind is BudgetKind.COST for budget in task.budgets)
        proven = len(self._proven), len(self._networks)
        self._networks.add(task.network)
        for tool in task.tools:
            hashes = self._tools.setdefault(tool.spec.name, set())
            if tool.sha256 not in hashes and isinstance(tool, ServedTool):
                self._add_server(tool)
            hashes.add(tool.sha256)
        if proven != (len(self._proven), len(self._networks)):
            self._to_prove.append(task)

    def _add_server(self, tool: ServedTool) -> None:
        said = tool.server
        own_name = said.pop("tool")
        self._proven.add(said["sha256"])
        self._servers.setdefault(said["sha256"], {**said, "tools": {}})["tools"][tool.spec.name] = own_name

    def survey(self) -> Survey:
        return Survey(
            sha256=self._digest.hexdigest(),
            tools={name: sorted(hashes) for name, hashes in sorted(self._tools.items())},
            servers=sorted(self._servers.values(), key=lambda server: (server["name"], server["sha256"])),
            needs_sandbox=self._sandbox,
            has_cost_budget=self._cost,
            to_prove=tuple(self._to_prove),
        )


def survey_of(tasks: Iterable[Task]) -> Survey:
    """Survey tasks that are made."""
    seen = _Seen()
    for task in tasks:
        seen.add(task)
    return seen.survey()


async def survey_run(suite: Suite, *, seed: int, tasks: int, level: int) -> Survey:
    """Survey the tasks of seeds ``seed`` to ``seed + tasks - 1``, each variant once.

    One that cannot be made is passed over: its episodes will say so, each on its own record.
    """
    seen = _Seen(server.sha256 for server in suite.servers) if isinstance(suite, ServedSuite) else _Seen()
    for n in range(min(tasks, suite.size)):
        if n % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        try:
            seen.add(suite.task(seed + n, level))
        except BaseException as error:
            if not is_its_own(error):
                raise
    return seen.survey()
