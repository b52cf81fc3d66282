"""bubblewrap passes the contract suite."""

from __future__ import annotations

import pytest
from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.testing.contracts.sandbox import SandboxContract


class TestBwrapSandbox(SandboxContract):
    @pytest.fixture
    async def provider(self):
        async with BwrapProvider() as provider:
            yield provider
