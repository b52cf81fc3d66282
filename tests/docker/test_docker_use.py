"""What is used is limited, measured and held back, in a container."""

from __future__ import annotations

import errno

import pytest
from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.testing.contracts.sandbox_calls import patience, shell
from tests.sandboxes.test_bwrap_use import *  # noqa: F403 - tests are found by their names

# Here the kernel counts the files of a workspace, and says so to who makes them: nobody has to be killed.
del test_workspace_has_a_number_of_files  # noqa: F821


@pytest.fixture
def provider(docker_provider):
    return docker_provider


@pytest.fixture
async def sandbox(docker_provider):
    async with await docker_provider.lease(SandboxSpec(), patience()) as sandbox:
        yield sandbox


async def test_kernel_counts_the_files_of_a_workspace(provider):
    limits = SandboxLimits(workspace_files=500)
    async with await provider.lease(SandboxSpec(limits=limits), patience()) as sandbox:
        done = await shell(sandbox, "for i in $(seq 1000); do : > f$i || exit 7; done")
        assert done.exit_code != 0
        assert b"No space left" in done.stderr.head
        assert 480 < len(await sandbox.list()) < 500
        with pytest.raises(OSError, match=r"No space left|too many files") as refused:
            await sandbox.write("more", b"")
        assert refused.value.errno in {errno.ENOSPC, errno.EDQUOT}
        assert (await shell(sandbox, "rm f*; echo x > f && cat f")).stdout.head == b"x\n"
