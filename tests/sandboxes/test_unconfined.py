"""Ordinary processes pass the contract suite, but for what their identity says does not hold."""

from __future__ import annotations

import logging
import os

import pytest
from agentenv.core.sandbox import NetworkAccess, SandboxSpec
from agentenv.sandboxes.unconfined import UnconfinedProvider
from agentenv.testing.contracts.sandbox import SandboxContract
from agentenv.testing.contracts.sandbox_calls import patience, said, shell
from tests.sandboxes.kinds import KINDS, WEAK


class TestUnconfinedSandbox(SandboxContract):
    @pytest.fixture
    async def provider(self):
        async with UnconfinedProvider() as provider:
            yield provider

    async def test_network_is_none_unless_hosts_are_named(self, sandbox):
        """It is open, as the identity says, and measured as such."""
        state = await sandbox.network_state()
        assert state.access is NetworkAccess.OPEN, state.detail

    async def test_named_hosts_are_an_allow_list(self, provider):
        """There is a proxy for them, but nothing that keeps commands from going past it."""
        async with await provider.lease(SandboxSpec(network=("example.org",)), patience()) as sandbox:
            state = await sandbox.network_state()
            assert state.access is NetworkAccess.OPEN, state.detail
            assert "proxy of the allow-list: yes" in state.detail


async def test_user_is_never_root():
    """Nor any privilege of root's left, nor a way to get one."""
    async with UnconfinedProvider() as provider, await provider.lease(SandboxSpec(), patience()) as sandbox:
        done = await shell(sandbox, "id -u; id -G; grep -E '^(CapEff|CapPrm|NoNewPrivs):' /proc/self/status")
        user, groups, *others = said(done).splitlines()
        assert user == str(os.geteuid() or 10003)
        assert os.geteuid() != 0 or groups == "10003"
        assert [line.split()[1] for line in others] == ["0" * 16, "0" * 16, "1"]


@pytest.mark.parametrize("kind", WEAK)
async def test_weak_kinds_say_so_once(kind, caplog):
    """In one line at the first sandbox, in the manifest, and in what a probe finds."""
    async with WEAK[kind]() as provider:
        status = await provider.probe()
        assert (status.works, status.detail[:5]) == (True, "WEAK;")
        assert caplog.records == []
        for _ in range(2):
            async with await provider.lease(SandboxSpec(), patience()):
                pass
        (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert f"{kind} (weak)" in line
        assert provider.identity()["weak"] in line
        assert len(provider.identity()["weak"]) > 50


@pytest.mark.parametrize("kind", KINDS)
async def test_others_do_not(kind, caplog):
    async with KINDS[kind]() as provider, await provider.lease(SandboxSpec(), patience()):
        assert caplog.records == []
