"""What the parts of the contract suite of sandboxes share: the provider under test, and a leased sandbox."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from agentenv.core.sandbox import (
    Sandbox,
    SandboxLimits,
    SandboxProvider,
    SandboxSpec,
)
from agentenv.testing.contracts.sandbox_calls import patience


class SandboxFixtures:
    """Fixtures of a part of the suite."""

    @pytest.fixture
    async def provider(self) -> AsyncGenerator[SandboxProvider]:
        """Give the provider under test; overridden."""
        raise NotImplementedError
        yield  # noqa: PT022 - what overrides do

    @pytest.fixture
    async def sandbox(self, provider: SandboxProvider) -> AsyncGenerator[Sandbox]:
        """Lease one with a few files."""
        files = {"a.txt": b"alpha\n", "folder/b.txt": b"beta\n", "folder/deep/c.bin": bytes(range(256))}
        spec = SandboxSpec(files=files, limits=SandboxLimits(output_bytes=1000, processes=64))
        async with await provider.lease(spec, patience()) as sandbox:
            yield sandbox
