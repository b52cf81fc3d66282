"""A real sandbox for the tools that need one."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Sandbox, SandboxLimits, SandboxSpec
from agentenv.core.tool import ToolContext
from agentenv.sandboxes.bwrap import BwrapProvider

from tests.toolkit.kit import make_context


@pytest.fixture
async def sandbox() -> AsyncGenerator[Sandbox]:
    async with BwrapProvider() as provider:
        spec = SandboxSpec(limits=SandboxLimits(output_bytes=10_000))
        async with await provider.lease(spec, Deadline.after(30, "lease")) as leased:
            yield leased


@pytest.fixture
async def context(sandbox: Sandbox) -> AsyncGenerator[ToolContext]:
    made = make_context(sandbox, cap=4_000)
    async with made.resources:
        yield made
