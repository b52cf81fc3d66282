"""What the suites that need a sandbox make of their own players, as a table to compare."""

from __future__ import annotations

from collections.abc import Sequence

from agentenv.core.sandbox import SandboxProvider
from agentenv.core.task import Suite
from agentenv.records.axes import Outcome
from tests.tasks.playing import play

from agentenv_tasks.keep_original import suite as keep_original
from agentenv_tasks.repair import suite as repair

SUITES: tuple[Suite, ...] = (repair, keep_original)
SAMPLE = (3, 251)
"""Seeds."""

Grades = dict[tuple[str, str], tuple[Outcome, dict[str, float | None]]]
"""Task id and player to outcome and components."""


async def grades(provider: SandboxProvider, seeds: Sequence[int]) -> Grades:
    """Play the reference and the one that does nothing, in a sandbox each."""
    found: Grades = {}
    for suite in SUITES:
        for level in suite.levels:
            for seed in seeds:
                task = suite.task(seed, level)
                for player in ("reference", "nothing"):
                    played = await play(task, player, provider)
                    found[task.id, player] = played.grade.outcome, played.components
    return found
