"""Ordinary processes pass the contract suite, but for what their identity says does not hold."""

from __future__ import annotations

import pytest
from agentenv.core.sandbox import NetworkAccess
from agentenv.sandboxes.unconfined import UnconfinedProvider
from agentenv.testing.contracts.sandbox import SandboxContract


class TestUnconfinedSandbox(SandboxContract):
    @pytest.fixture
    async def provider(self):
        async with UnconfinedProvider() as provider:
            yield provider

    async def test_network_is_none_unless_hosts_are_named(self, sandbox):
        """It is open, as the identity says, and measured as such."""
        state = await sandbox.network_state()
        assert state.access is NetworkAccess.OPEN, state.detail
