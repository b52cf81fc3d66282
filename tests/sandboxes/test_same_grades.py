"""A task is worth the same whatever kind of sandbox it is done in.

Containers are compared in ``tests/docker/test_docker_grades.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from agentenv.core.sandbox import SandboxProvider
from agentenv.records.axes import Outcome
from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.sandboxes.namespaces import NamespacesProvider
from tests.sandboxes.grades import SAMPLE, SUITES, Grades, grades

from agentenv_tasks.repair import suite as repair

KINDS: Mapping[str, Callable[[], SandboxProvider]] = {"bwrap": BwrapProvider, "namespaces": NamespacesProvider}


async def of_every_kind(seeds: range | tuple[int, ...]) -> dict[str, Grades]:
    found: dict[str, Grades] = {}
    for name, kind in KINDS.items():
        async with kind() as provider:
            found[name] = await grades(provider, seeds)
    return found


def check(found: dict[str, Grades], seeds: range | tuple[int, ...]) -> None:
    first = next(iter(found.values()))
    assert all(each == first for each in found.values())
    assert len(first) == 2 * len(seeds) * sum(len(suite.levels) for suite in SUITES)
    for (_, player), (outcome, components) in first.items():
        assert outcome is (Outcome.SUCCESS if player == "reference" else Outcome.FAILURE)
        assert (sum(value or 0.0 for value in components.values()) > 0) == (player == "reference")


async def test_reference_and_nothing_get_the_same_grades_in_every_kind_of_sandbox() -> None:
    check(await of_every_kind(SAMPLE), SAMPLE)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_all_tasks_of_a_wide_sample_do() -> None:
    seeds = range(0, repair.size, 19)
    check(await of_every_kind(seeds), seeds)
