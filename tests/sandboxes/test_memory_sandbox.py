"""The fake passes the contract suite, and plays scripts."""

from __future__ import annotations

import pytest
from agentenv.core.sandbox import SandboxSpec
from agentenv.testing.contracts.sandbox import SandboxContract
from agentenv.testing.contracts.sandbox_calls import patience
from agentenv.testing.programs import Scripted, scripted
from agentenv.testing.sandboxes import InMemoryProvider


class TestInMemorySandbox(SandboxContract):
    @pytest.fixture
    async def provider(self):
        async with InMemoryProvider() as provider:
            yield provider


async def test_scripts_are_found_by_arguments_and_by_shell_line():
    """What a mapping does not name is no program."""
    commands = scripted({("make", "test"): Scripted(exit_code=2), "ls | wc -l": Scripted(stdout=b"3\n")})
    async with InMemoryProvider(commands=commands) as provider:
        sandbox = await provider.lease(SandboxSpec(), patience())
        assert (await sandbox.run(["make", "test"], deadline=patience(), timeout_s=1)).exit_code == 2
        assert (await sandbox.run("ls | wc -l", deadline=patience(), timeout_s=1)).stdout.head == b"3\n"
        assert (await sandbox.run("ls", deadline=patience(), timeout_s=1)).exit_code == 127
        assert provider.leased[0].commands_run[0] == ("make", "test")
