"""Namespaces sandboxes pass the contract suite."""

from __future__ import annotations

import pytest
from agentenv.sandboxes.namespaces import NamespacesProvider
from agentenv.testing.contracts.sandbox import SandboxContract


class TestNamespacesSandbox(SandboxContract):
    @pytest.fixture
    async def provider(self):
        async with NamespacesProvider() as provider:
            yield provider
