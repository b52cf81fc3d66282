"""How commands end, and what their limits are exactly; in every kind that holds, beyond ``test_conformance.py``."""

from __future__ import annotations

import asyncio

import pytest
from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.core.sandbox_process import ProcessDied
from agentenv.storage.blobs import FolderBlobs
from agentenv.testing.contracts.sandbox_calls import alive, patience, python, said, shell, stopped
from tests.sandboxes.kinds import KINDS

LIMITS = SandboxLimits(
    memory_bytes=512 << 20, processes=100, tmp_bytes=8 << 20, file_bytes=32 << 20, output_bytes=1 << 16
)


@pytest.fixture(params=KINDS)
async def provider(request):
    async with KINDS[request.param]() as provider:
        yield provider


@pytest.fixture
async def sandbox(provider):
    async with await provider.lease(SandboxSpec(limits=LIMITS), patience()) as sandbox:
        yield sandbox


# What a command can use up.


async def test_limits_are_on_every_command_from_its_start(sandbox):
    """Memory in KiB, processes, blocks of 512 bytes, CPU seconds, files. The first three can never be raised."""
    done = await shell(
        sandbox, "ulimit -v; ulimit -p; ulimit -f; ulimit -t; ulimit -n; ulimit -Hv; ulimit -Hp; ulimit -Hf"
    )
    assert said(done).split() == ["524288", "100", "65536", "600", "256", "524288", "100", "65536"]
    later = await python(sandbox, "import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))")
    assert said(later) == "(256, 256)\n"


@pytest.mark.slow
async def test_cpu_time_of_a_process_is_limited(provider):
    limits = SandboxLimits(cpu_s=1)
    async with await provider.lease(SandboxSpec(limits=limits), patience()) as sandbox:
        done = await shell(sandbox, "i=0; while [ $i -lt 100000000 ]; do i=$((i+1)); done")
        assert not done.timed_out
        assert done.exit_code in {137, 152}


async def test_flood_is_spilled_whole(sandbox, tmp_path):
    """Both streams at once, each to a blob of its own; nothing is held but the ends."""
    blobs = FolderBlobs(tmp_path)
    done = await sandbox.run("seq 1000000; seq 100000 >&2", deadline=patience(), timeout_s=60, blobs=blobs)
    whole = b"".join(b"%d\n" % n for n in range(1, 1_000_001))
    assert blobs.get(done.stdout.spill.sha256) == whole
    assert blobs.get(done.stderr.spill.sha256) == whole[: done.stderr.total_bytes]
    assert done.stdout.head == whole[: 1 << 15]
    assert done.stdout.tail == whole[-(1 << 15) :]
    assert list((tmp_path / "tmp").iterdir()) == []


async def test_endless_flood_ends_at_its_timeout(sandbox, tmp_path):
    """Law 12: whatever it does; and what it wrote is kept."""
    blobs = FolderBlobs(tmp_path)
    done = await sandbox.run("yes", deadline=patience(), timeout_s=0.3, blobs=blobs)
    assert done.timed_out
    assert done.stdout.spill.size_bytes == done.stdout.total_bytes


# How a command ends.


async def test_sigterm_comes_first(sandbox):
    """A command may tidy up in its grace."""
    done = await stopped(sandbox, "trap 'echo tidy; exit 3' TERM; sleep 1000 & wait")
    assert (done.exit_code, done.timed_out, done.stdout.head) == (3, True, b"tidy\n")
    assert await alive(sandbox) == []


async def test_command_ends_while_a_kept_process_goes_on(sandbox):
    """Also while that one has daemons of its own: each job's processes are told apart."""
    kept = await sandbox.start(
        ["sh", "-c", "(setsid sh -c 'sleep 1000' &); read x; echo $x; read x; pgrep -c sleep || true; cat"],
        deadline=patience(),
    )
    assert await kept.request(b"ready", patience()) == b"ready"
    done = await shell(sandbox, "(setsid sleep 2000 &) ; true")
    assert done.killed >= 1
    assert await kept.request(b"count", patience()) == b"1"
    assert len([line for line in await alive(sandbox) if "(sleep)" in line]) == 1
    await kept.aclose()
    assert await alive(sandbox) == []


async def test_commands_at_once_keep_each_others_daemons(sandbox):
    """The end of one kills nothing of another, which is still running."""
    slow = asyncio.ensure_future(
        shell(
            sandbox,
            "(setsid sh -c 'until test -e go; do sleep 0.01; done; echo daemon > daemon' &); touch up;"
            " until test -s daemon; do sleep 0.01; done; cat daemon",
        )
    )
    while "up" not in {each.name for each in await sandbox.list()}:
        await asyncio.sleep(0)
    assert (await shell(sandbox, "(setsid sleep 1000 &); true")).killed >= 1
    await sandbox.write("go", b"")
    assert (await slow).stdout.head == b"daemon\n"
    assert await alive(sandbox) == []


async def test_orphans_of_a_kept_process_are_reaped(sandbox):
    """150 of them, one after another, fill no limit of 100 processes and leave no zombie."""
    kept = await sandbox.start(
        ["sh", "-c", "read x; i=0; while [ $i -lt 150 ]; do (setsid true &); i=$((i+1)); done; echo $i; exec cat"],
        deadline=patience(),
    )
    assert await kept.request(b"go", patience()) == b"150"
    while len(await alive(sandbox)) > 1:  # the last ones may be on their way
        pass
    assert await kept.request(b"there", patience()) == b"there"


async def test_stdin_nobody_reads(sandbox):
    done = await sandbox.run(["true"], deadline=patience(), timeout_s=5, stdin=bytes(3_000_000))
    assert (done.exit_code, done.timed_out) == (0, False)
    slow = await sandbox.run("sleep 0.1; wc -c", deadline=patience(), timeout_s=30, stdin=bytes(3_000_000))
    assert slow.stdout.head == b"3000000\n"


async def test_scripts_without_an_interpreter_line(sandbox):
    """A file that cannot be executed is 126, one that a shell would run is run."""
    await shell(sandbox, "echo 'echo plain $1' > script; chmod +x script; echo x > data")
    assert (await sandbox.run(["./script", "a"], deadline=patience(), timeout_s=5)).stdout.head == b"plain a\n"
    assert (await sandbox.run(["./data"], deadline=patience(), timeout_s=5)).exit_code == 126


async def test_lines_nobody_asked_for_answer_nothing(sandbox):
    """A greeting, and what a process says after its answer, are dropped."""
    chatty = await sandbox.start(
        ["sh", "-c", "echo banner; touch up; while read x; do rm up; echo re:$x; echo stray; touch up; done"],
        deadline=patience(),
    )
    for question in (b"1", b"2", b"3"):
        while "up" not in {each.name for each in await sandbox.list()}:
            await asyncio.sleep(0)
        assert await chatty.request(question, patience()) == b"re:" + question


async def test_answer_without_an_end(sandbox):
    """It costs the process its life, not the sandbox."""
    endless = await sandbox.start(["sh", "-c", "read x; tr '\\0' x < /dev/zero"], deadline=patience())
    with pytest.raises(ProcessDied, match="longer than"):
        await endless.request(b"go", patience())
    assert (await shell(sandbox, "echo on")).stdout.head == b"on\n"


async def test_death_of_a_kept_process_says_why(sandbox):
    """The end of its stderr, and its exit code."""
    process = await sandbox.start(["sh", "-c", "read x; echo 'no more memory' >&2; exit 7"], deadline=patience())
    with pytest.raises(ProcessDied, match=r"exit code 7.*no more memory"):
        await process.request(b"go", patience())
