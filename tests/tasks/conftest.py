"""A provider of real sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from agentenv.core.sandbox import SandboxProvider
from agentenv.sandboxes.bwrap import BwrapLauncher
from agentenv.sandboxes.supervised_provider import SupervisedProvider


@pytest.fixture
async def provider() -> AsyncIterator[SandboxProvider]:
    async with SupervisedProvider(BwrapLauncher()) as provider:
        yield provider
