"""Landlock sandboxes pass the contract suite, but for what their identity says does not hold."""

from __future__ import annotations

import socket

import pytest
from agentenv.core.sandbox import NetworkAccess
from agentenv.sandboxes.landlock import LandlockProvider
from agentenv.testing.contracts.sandbox import SandboxContract


class TestLandlockSandbox(SandboxContract):
    @pytest.fixture
    async def provider(self):
        async with LandlockProvider() as provider:
            yield provider

    async def test_network_is_none_unless_hosts_are_named(self, sandbox):
        """No socket can be made; but the interfaces of this machine are seen."""
        state = await sandbox.network_state()
        assert state.access is NetworkAccess.NONE, state.detail
        assert set(state.interfaces) == {name for _, name in socket.if_nameindex()} - {"lo"}
