"""What is used is limited, measured and held back, in a bubblewrap sandbox: workspace, memory, background output."""

from __future__ import annotations

import asyncio
import errno

import pytest
from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.core.sandbox_process import ProcessDied
from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.testing.contracts.sandbox_calls import alive, patience, python, shell, stopped
from agentenv.testing.stores import InMemoryBlobs

_LEAVES_A_HEADLESS_DAEMON = """
import ctypes, os, threading, time
pid = os.fork()
if pid == 0:
    os.setsid()
    threading.Thread(target=time.sleep, args=(1000,)).start()
    ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
while ") Z" not in open(f"/proc/{pid}/stat").read():
    pass
"""


@pytest.fixture
async def provider():
    async with BwrapProvider() as provider:
        yield provider


@pytest.fixture
async def sandbox(provider):
    async with await provider.lease(SandboxSpec(), patience()) as sandbox:
        yield sandbox


async def test_workspace_has_a_size(provider):
    """By the kernel, whatever the number of files; and a file that is written through the harness meets it too."""
    limits = SandboxLimits(workspace_bytes=4 << 20)
    async with await provider.lease(SandboxSpec(limits=limits), patience()) as sandbox:
        done = await shell(sandbox, "for i in 1 2 3 4 5 6 7 8; do head -c 1M /dev/zero > f$i; done; cat f* | wc -c")
        assert b"No space left" in done.stderr.head
        assert int(done.stdout.head) <= 4 << 20
        with pytest.raises(OSError, match="No space left") as refused:
            await sandbox.write("more", bytes(1 << 20))
        assert refused.value.errno == errno.ENOSPC
        assert (await sandbox.usage()).workspace_bytes <= 4 << 20
        assert (await shell(sandbox, "rm f*; echo x > f && cat f")).stdout.head == b"x\n"


async def test_workspace_has_a_number_of_files(provider):
    """Who makes too many is killed and told; who then removes some is not; nor can the harness make more."""
    limits = SandboxLimits(workspace_files=500)
    many = "for n in range(200_000): open(str(n), 'w').close()"
    async with await provider.lease(SandboxSpec(limits=limits), patience()) as sandbox:
        await sandbox.write(".many.py", many.encode())
        command = ["python3", "-I", "-S", ".many.py"]
        done = await sandbox.run(command, deadline=patience(), timeout_s=30)
        assert (done.exit_code, done.timed_out) == (137, False)
        assert b"the workspace may have 500 files" in done.stderr.head
        assert (await sandbox.usage()).workspace_files < 100_000
        with pytest.raises(OSError, match="too many files"):
            await sandbox.write("more", b"")
        assert (await shell(sandbox, "ls | head -c 1 | wc -c; sleep 0.1; find . -name '[0-9]*' -delete")).exit_code == 0
        kept = await sandbox.start(["sh", "-c", "read x; exec python3 -I -S .many.py"], deadline=patience())
        with pytest.raises(ProcessDied, match="may have 500 files"):
            await kept.request(b"go", patience())
        await shell(sandbox, "find . -name '[0-9]*' -delete")
        async with await sandbox.spawn(command, deadline=patience()) as process:
            assert await process.wait(patience()) == 137
            assert b"may have 500 files" in (await process.read(patience()))[1]


async def test_workspace_on_disk_is_measured_by_looking(provider):
    limits = SandboxLimits(workspace_bytes=None)
    async with await provider.lease(SandboxSpec(limits=limits), patience()) as sandbox:
        await shell(sandbox, "mkdir -p a/b; head -c 100000 /dev/zero > a/b/f; chmod 000 a/b; ln -s nowhere link")
        used = await sandbox.usage()
        assert used.workspace_files == 4
        assert used.workspace_bytes >= 100_000
        await sandbox.restore({}, InMemoryBlobs())
        assert await sandbox.list() == []
        assert (await sandbox.usage()).workspace_files == 0


async def test_use_of_cpu_and_memory_is_seen(sandbox):
    """Of what runs, and of what has ended."""
    burn = "import time\nblock = bytearray(50 << 20)\nwhile time.process_time() < 0.3: pass\n"
    await sandbox.write("burn.py", (burn + "print(flush=True); time.sleep(1000)").encode())
    async with await sandbox.spawn(["python3", "-I", "-S", "burn.py"], deadline=patience()) as process:
        assert await process.read(patience()) == ("out", b"\n")
        used = await sandbox.usage()
        assert used.cpu_s >= 0.25  # counted in ticks
        assert used.memory_bytes >= 50 << 20
        assert used.processes == 1
    await python(sandbox, burn)
    assert (await sandbox.usage()).cpu_s >= 0.5


async def test_background_flood_waits_in_the_sandbox(sandbox):
    """An endless writer nobody reads stops at the size of its pipe, while everything else goes on."""
    async with await sandbox.spawn("yes | tee copy >/dev/stderr", deadline=patience()) as process:
        seen, sizes = await process.read(patience()), []
        assert seen[0] == "err"
        while len(sizes) < 3 or sizes[-1] != sizes[-3]:
            await shell(sandbox, "sleep 0.1")
            sizes.append((await shell(sandbox, "stat -c %s copy")).stdout.head)
        assert int(sizes[-1]) < len(seen[1]) + (1 << 20)
        for _ in range(20):
            assert (await process.read(patience()))[0] == "err"
    assert await alive(sandbox) == []


async def test_background_processes_end_with_all_they_left(sandbox):
    """And their last words are there."""
    async with await sandbox.spawn("(setsid sleep 1000 &); echo out; echo err >&2", deadline=patience()) as process:
        assert await process.wait(patience()) == 0
        assert await alive(sandbox) == []
        assert {await process.read(patience()), await process.read(patience())} == {
            ("out", b"out\n"),
            ("err", b"err\n"),
        }
        assert await process.read(patience()) is None


async def test_writing_to_who_closed_its_stdin(sandbox):
    async with await sandbox.spawn("exec <&-; echo closed; sleep 1000", deadline=patience()) as process:
        assert await process.read(patience()) == ("out", b"closed\n")
        with pytest.raises(ProcessDied, match="closed its stdin"):
            await process.write(b"x", patience())
        assert process.alive


async def test_commands_die_before_the_supervisor(sandbox):
    """Short of memory, the kernel takes them first."""
    done = await shell(sandbox, "cat /proc/self/oom_score_adj")
    assert int(done.stdout.head) >= 500


async def test_what_it_wrote_before_the_timeout_is_kept(sandbox):
    done = await stopped(sandbox, "echo first >&2; echo second; sleep 1000; echo third")
    assert (done.timed_out, done.stderr.head, done.stdout.head) == (True, b"first\n", b"second\n")


async def test_ends_of_commands_spare_daemons_that_are_only_starting(sandbox):
    """While a process becomes another program, nothing shows whose it is; it is no command's leftover for that."""
    start = "read x; n=0; while [ $n -lt 40 ]; do (setsid sh -c 'exec env sleep 1000' &); n=$((n+1)); done; echo $$"
    kept = await sandbox.start(["sh", "-c", f"{start}; exec cat"], deadline=patience())
    starting = asyncio.ensure_future(kept.request(b"go", patience()))
    while not starting.done():
        await shell(sandbox, "(setsid sleep 2000 &); true")
    leader = (await starting).decode()
    await shell(sandbox, "(setsid sleep 2000 &); true")
    states: list[str] = []
    while not states or not all("(sleep) S" in state for state in states):
        states = [line for line in await alive(sandbox) if line.split()[0] != leader]
        assert len(states) == 40


async def test_daemons_without_their_first_thread_end_with_the_command(sandbox):
    """The kernel shows such a process as a zombie."""
    done = await python(sandbox, _LEAVES_A_HEADLESS_DAEMON)
    assert (done.exit_code, done.killed, done.stderr.head) == (0, 1, b"")
    assert await alive(sandbox) == []


async def test_daemons_without_their_first_thread_are_spared_by_other_commands(sandbox):
    await sandbox.write("daemon.py", _LEAVES_A_HEADLESS_DAEMON.encode())
    async with await sandbox.spawn("python3 -I daemon.py; echo it is there; cat", deadline=patience()) as process:
        assert await process.read(patience()) == ("out", b"it is there\n")
        await shell(sandbox, "(setsid sleep 2000 &); true")
        assert [line.split()[1:] for line in await alive(sandbox) if "python" in line] == [["(python3)", "Z"]]


async def test_daemons_that_cannot_be_stopped_and_have_no_environment_end_with_the_command(sandbox):
    """One waits for its child of vfork; that one waits in an open. Other jobs' processes live on."""
    kept = await sandbox.start(["cat"], deadline=patience())
    done = await shell(
        sandbox,
        "mkfifo f; setsid env -i $(command -v python3) -I -c '"
        'import os; os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 5, "f", 0, 0)])'
        "' & until grep -q ') D' /proc/$!/stat; do :; done",
    )
    assert (done.exit_code, done.killed) == (0, 2)
    assert [line.split()[1] for line in await alive(sandbox)] == ["(cat)"]
    assert await kept.request(b"still here", patience()) == b"still here"
