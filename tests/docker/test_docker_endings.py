"""What a command can use up, and how it ends, in a container: the tests of the other kinds, and what differs."""

from __future__ import annotations

import pytest
from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.testing.contracts.sandbox_calls import patience, python, said, shell
from tests.sandboxes.test_bwrap_endings import *  # noqa: F403 - tests are found by their names
from tests.sandboxes.test_bwrap_endings import LIMITS

# The control group counts the processes; the limit of a user's would count those of other containers.
del test_limits_are_on_every_command_from_its_start  # noqa: F821


@pytest.fixture
async def sandbox(docker_provider):
    async with await docker_provider.lease(SandboxSpec(limits=LIMITS), patience()) as sandbox:
        yield sandbox


@pytest.fixture
def provider(docker_provider):
    return docker_provider


async def test_limits_are_on_every_command(sandbox):
    done = await shell(sandbox, "ulimit -v; ulimit -f; ulimit -n; ulimit -c; ulimit -q")
    assert said(done).split()[:4] == [str(512 << 10), str(LIMITS.file_bytes // 512), "256", "0"]


async def test_processes_are_counted_by_container(provider):
    """Two of them, of the same user, have room for as many each."""
    many = """
import os, time
for _ in range(90):
    if os.fork() == 0:
        time.sleep(1000)
print("made", flush=True)
time.sleep(1000)
"""
    spec = SandboxSpec(files={"many.py": many.encode()}, limits=SandboxLimits(processes=100))
    async with await provider.lease(spec, patience()) as one, await provider.lease(spec, patience()) as other:
        for sandbox in (one, other):
            process = await sandbox.spawn(["python3", "many.py"], deadline=patience())
            assert await process.read(patience()) == ("out", b"made\n")
        assert [(await each.usage()).processes for each in (one, other)] == [91, 91]


async def test_memory_of_all_processes_is_limited(provider):
    """Processes within their own limit are killed when their sum is not; the sandbox goes on."""
    spec = SandboxSpec(limits=SandboxLimits(memory_bytes=256 << 20, total_memory_bytes=256 << 20))
    async with await provider.lease(spec, patience()) as sandbox:
        done = await python(
            sandbox,
            """
import os, time
for _ in range(6):
    if os.fork() == 0:
        block = bytearray(b"x") * (100 << 20)
        time.sleep(1000)
print(sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(3)))
""",
        )
        assert said(done) == "[-9, -9, -9]\n"
        assert (await shell(sandbox, "echo alive")).stdout.head == b"alive\n"
        peak = (await sandbox.usage()).peak_memory_bytes
        assert peak is None or 200 << 20 < peak <= 256 << 20


async def test_what_lies_in_memory_counts(provider):
    """Files of the workspace and of the temporary folder are memory as well."""
    spec = SandboxSpec(limits=SandboxLimits(total_memory_bytes=96 << 20, workspace_bytes=1 << 30, file_bytes=1 << 30))
    async with await provider.lease(spec, patience()) as sandbox:
        done = await shell(sandbox, "head -c 300M /dev/zero > f")
        assert done.exit_code == 137
        assert (await sandbox.usage()).workspace_bytes < 96 << 20
        await sandbox.write("f", b"")  # the supervisor lives, and needs no memory for it; commands may find none
        assert (await shell(sandbox, "echo room > f; cat f")).stdout.head == b"room\n"
