"""Docker passes the contract suite, on a real engine."""

from __future__ import annotations

import pytest
from agentenv.sandboxes.docker import DockerProvider
from agentenv.testing.contracts.sandbox import SandboxContract


class TestDockerSandbox(SandboxContract):
    @pytest.fixture
    async def provider(self, engine, root):
        async with DockerProvider(url=engine, workspace_root=root) as provider:
            yield provider
