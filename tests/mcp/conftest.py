"""A real sandbox for servers over stdio."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Sandbox, SandboxSpec
from agentenv.sandboxes.bwrap import BwrapProvider

from tests.cli.kit import Cli, in_process


@pytest.fixture
async def sandbox() -> AsyncGenerator[Sandbox]:
    async with BwrapProvider() as provider, await provider.lease(SandboxSpec(), Deadline.after(60, "lease")) as leased:
        yield leased


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return in_process(monkeypatch, capsys)
