"""The same grades in containers as in every other kind of sandbox."""

from __future__ import annotations

from agentenv.core.sandbox import SandboxProvider
from agentenv.sandboxes.bwrap import BwrapProvider
from tests.sandboxes.grades import SAMPLE, grades


async def test_same_grades_as_under_bubblewrap(docker_provider: SandboxProvider) -> None:
    async with BwrapProvider() as bwrap:
        assert await grades(docker_provider, SAMPLE) == await grades(bwrap, SAMPLE)
