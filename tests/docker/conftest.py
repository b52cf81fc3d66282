"""One real Docker Engine for the whole test run, private to it (`engine.py`), or the one that DOCKER_HOST names.

Nothing is skipped: without an engine these tests fail, and say how to get it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from agentenv.core.sandbox import SandboxProvider
from agentenv.sandboxes.docker import DockerProvider

sys.path.insert(0, str(Path(__file__).parent))

from engine import EngineFailed, private_engine  # it is a script of its own as well

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs the engine."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.docker)


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """Address of the engine under test."""
    if address := os.environ.get("DOCKER_HOST"):
        yield address
        return
    try:
        with private_engine() as address:
            yield address
    except EngineFailed as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Folder of the leases, reachable for the sandboxes' user."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o711)
    return tmp_path


@pytest.fixture
async def docker_provider(engine: str, root: Path) -> AsyncIterator[SandboxProvider]:
    async with DockerProvider(url=engine, workspace_root=root) as provider:
        yield provider
