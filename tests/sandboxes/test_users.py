"""Commands of one kind of sandbox have no rights over the processes of another, whoever can see whom."""

from __future__ import annotations

import os

import pytest
from agentenv.core.sandbox import SandboxSpec
from agentenv.testing.contracts.sandbox_calls import patience
from tests.sandboxes.kinds import ALL, WEAK
from tests.sandboxes.trespassing import processes_of, trespasses


@pytest.mark.parametrize(("weak", "other"), [(weak, other) for weak in WEAK for other in ALL if weak != other])
async def test_weak_kinds_have_no_rights_over_other_kinds(weak, other):
    """They see the machine's processes. A harness that is root gives each of them a user of its own.

    For an ordinary user there is no other one, which the words of the weak kinds say.
    """
    async with (
        ALL[weak]() as weak_provider,
        ALL[other]() as other_provider,
        await weak_provider.lease(SandboxSpec(), patience()) as intruder,
        await other_provider.lease(SandboxSpec(), patience()) as sandbox,
    ):
        pids = await processes_of(sandbox)
        assert len(pids) >= 3, "the command, its supervisor, and what is around it"
        assert os.geteuid() != 0 or await trespasses(intruder, pids) == ""


async def test_trespass_is_seen():
    """Within one kind that confines nothing it is what it looks for."""
    provider_of = ALL["none"]
    async with (
        provider_of() as provider,
        await provider.lease(SandboxSpec(), patience()) as intruder,
        await provider.lease(SandboxSpec(), patience()) as sandbox,
    ):
        command, *_ = await processes_of(sandbox)
        assert set((await trespasses(intruder, [command])).splitlines()) >= {
            f"{command} {what}" for what in ("signal", "environ", "cwd/.")
        }
