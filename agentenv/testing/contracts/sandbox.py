"""The contract suite of sandboxes, runnable on any provider, the fake included.

Use, in a test module::

    class TestMySandbox(SandboxContract):
        @pytest.fixture
        async def provider(self):
            async with MyProvider() as provider:
                yield provider

It runs the programs ``true false echo cat printenv pwd sleep`` and no shell, so that a fake can follow. What needs a
real kernel (escapes, bombs, floods) is another matter.
"""

from __future__ import annotations

import asyncio
import hashlib
import os

import pytest

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.sandbox import (
    NetworkAccess,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
)
from agentenv.core.sandbox_process import ProcessDied
from agentenv.errors import ConfigError, DamagedJournal, SandboxFault
from agentenv.records.messages import Spill
from agentenv.testing.contracts.sandbox_background import BackgroundContract
from agentenv.testing.contracts.sandbox_calls import PATIENCE_S, patience, run
from agentenv.testing.contracts.sandbox_files import FilesContract
from agentenv.testing.stores import InMemoryBlobs


class SandboxContract(FilesContract, BackgroundContract):
    """What every sandbox promises."""

    # The provider.

    async def test_probe_says_that_it_works(self, provider: SandboxProvider) -> None:
        status = await provider.probe()
        assert status.works, status.detail
        assert status.name == provider.name

    async def test_identity_is_for_the_manifest(self, provider: SandboxProvider) -> None:
        identity = provider.identity()
        assert identity["kind"] == provider.name
        assert identity == provider.identity()
        assert {"version", "network", "weak"} <= identity.keys()

    async def test_leases_share_nothing(self, provider: SandboxProvider) -> None:
        async with (
            await provider.lease(SandboxSpec(files={"f": b"1"}), patience()) as one,
            await provider.lease(SandboxSpec(), patience()) as other,
        ):
            await one.write("g", b"2")
            assert await other.list() == []

    async def test_file_of_the_start_must_lie_in_the_workspace(self, provider: SandboxProvider) -> None:
        """It is refused for good, and nothing is left."""
        with pytest.raises(SandboxFault, match=r"\.\./outside") as refusal:
            await provider.lease(SandboxSpec(files={"../outside": b""}), patience())
        assert not refusal.value.retryable

    async def test_lease_after_its_deadline(self, provider: SandboxProvider) -> None:
        late = Deadline.after(-1.0, "a start")
        with pytest.raises(DeadlineReached) as reached:
            await provider.lease(SandboxSpec(), late)
        assert reached.value.deadline is late

    async def test_closing_the_provider_closes_what_is_open(self, provider: SandboxProvider) -> None:
        sandbox = await provider.lease(SandboxSpec(), patience())
        await provider.aclose()
        with pytest.raises(SandboxFault):
            await run(sandbox, "true")

    # Commands.

    async def test_exit_codes(self, sandbox: Sandbox) -> None:
        done = await run(sandbox, "true")
        assert (done.exit_code, done.timed_out, done.killed) == (0, False, 0)
        assert done.stdout.head == done.stderr.head == b""
        assert (await run(sandbox, "false")).exit_code == 1

    async def test_missing_program_is_a_result(self, sandbox: Sandbox) -> None:
        """127, as a shell says it, with the name on stderr."""
        done = await run(sandbox, "no-such-program")
        assert done.exit_code == 127
        assert b"no-such-program" in done.stderr.head

    async def test_output_and_input_are_bytes(self, sandbox: Sandbox) -> None:
        """All 256 of them come back exactly, stdin to stdout."""
        assert (await run(sandbox, "echo", "hello", "world")).stdout.head == b"hello world\n"
        everything = bytes(range(256)) * 3
        assert (await run(sandbox, "cat", stdin=everything)).stdout.head == everything

    async def test_no_stdin_is_an_ended_one(self, sandbox: Sandbox) -> None:
        done = await run(sandbox, "cat")
        assert (done.exit_code, done.stdout.head, done.timed_out) == (0, b"", False)

    async def test_environment_is_what_was_given(self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HARNESS_SECRET", "key")
        assert (await run(sandbox, "printenv", "HARNESS_SECRET")).exit_code == 1
        given = await sandbox.run(
            ["printenv", "GIVEN"], deadline=patience(), timeout_s=PATIENCE_S, env={"GIVEN": "a=b ü"}
        )
        assert given.stdout.head == "a=b ü\n".encode()
        assert (await run(sandbox, "printenv", "GIVEN")).exit_code == 1

    async def test_working_folder(self, sandbox: Sandbox) -> None:
        inner = await sandbox.run(["cat", "b.txt"], deadline=patience(), timeout_s=PATIENCE_S, cwd="folder")
        assert inner.stdout.head == b"beta\n"
        for bad in ("missing", "a.txt", "..", "/", "folder/../.."):
            done = await sandbox.run(["pwd"], deadline=patience(), timeout_s=PATIENCE_S, cwd=bad)
            assert done.exit_code == 126, bad

    async def test_timeout_is_a_result(self, sandbox: Sandbox) -> None:
        """The command is stopped, the result says so, the sandbox stays."""
        done = await sandbox.run(["sleep", "1000"], deadline=patience(), timeout_s=0.2)
        assert done.timed_out
        assert done.exit_code > 128
        assert (await run(sandbox, "true")).exit_code == 0

    async def test_deadline_ends_the_command(self, sandbox: Sandbox) -> None:
        """The very object that fired is named; the command is gone, and the sandbox goes on."""
        soon = Deadline.after(0.2, "the caller")
        with pytest.raises(DeadlineReached) as reached:
            await sandbox.run(["sleep", "1000"], deadline=soon, timeout_s=PATIENCE_S)
        assert reached.value.deadline is soon
        assert (await run(sandbox, "true")).exit_code == 0

    async def test_output_up_to_the_cap_is_whole(self, sandbox: Sandbox) -> None:
        blobs = InMemoryBlobs()
        content = os.urandom(1000)
        done = await sandbox.run(["cat"], deadline=patience(), timeout_s=PATIENCE_S, stdin=content, blobs=blobs)
        assert (done.stdout.head, done.stdout.tail, done.stdout.spill) == (content, b"", None)
        assert (done.stdout.total_bytes, done.stdout.dropped_bytes) == (1000, 0)

    @pytest.mark.parametrize("size", [1001, 300_000])
    async def test_longer_output_keeps_both_ends_and_spills_the_whole(self, sandbox: Sandbox, size: int) -> None:
        blobs = InMemoryBlobs()
        content = os.urandom(size)
        done = await sandbox.run(["cat"], deadline=patience(), timeout_s=PATIENCE_S, stdin=content, blobs=blobs)
        out = done.stdout
        assert (out.head, out.tail) == (content[:500], content[-500:])
        assert (out.total_bytes, out.dropped_bytes) == (size, size - 1000)
        assert out.spill is not None
        assert (out.spill.sha256, out.spill.size_bytes) == (hashlib.sha256(content).hexdigest(), size)
        assert blobs.get(out.spill.sha256) == content

    async def test_without_a_blob_sink_the_middle_is_dropped(self, sandbox: Sandbox) -> None:
        content = os.urandom(50_000)
        out = (await run(sandbox, "cat", stdin=content)).stdout
        assert (out.head, out.tail, out.spill) == (content[:500], content[-500:], None)
        assert out.total_bytes == 50_000

    async def test_commands_at_once_keep_apart(self, sandbox: Sandbox) -> None:
        """Each gets its own output."""
        done = await asyncio.gather(*(run(sandbox, "cat", stdin=b"%d" % n) for n in range(12)))
        assert [each.stdout.head for each in done] == [b"%d" % n for n in range(12)]

    async def test_text_no_program_understands(self, sandbox: Sandbox) -> None:
        """Lone surrogates and NUL bytes are no exception."""
        assert (await run(sandbox, "echo", "\ud800")).exit_code == 0
        assert (await run(sandbox, "\ud800")).exit_code in {126, 127}
        assert (await run(sandbox, "no\0program")).exit_code in {126, 127}

    # Kept processes.

    async def test_kept_process_answers_in_order(self, sandbox: Sandbox) -> None:
        async with await sandbox.start(["cat"], deadline=patience()) as process:
            for line in (b"one", b"", b"\xff\x00two", b"x" * 200_000):
                assert await process.request(line, patience()) == line
            assert process.alive
            assert (await run(sandbox, "echo", "beside")).stdout.head == b"beside\n"
            assert await process.request(b"still there", patience()) == b"still there"
        assert not process.alive
        with pytest.raises(ProcessDied):
            await process.request(b"late", patience())

    async def test_requests_at_once_take_turns(self, sandbox: Sandbox) -> None:
        async with await sandbox.start(["cat"], deadline=patience()) as process:
            lines = [b"%d" % n for n in range(10)]
            assert await asyncio.gather(*(process.request(line, patience()) for line in lines)) == lines

    async def test_kept_process_that_dies(self, sandbox: Sandbox) -> None:
        process = await sandbox.start(["false"], deadline=patience())
        for _ in range(2):
            with pytest.raises(ProcessDied, match="1"):
                await process.request(b"anyone?", patience())
        assert not process.alive

    async def test_kept_process_that_cannot_start(self, sandbox: Sandbox) -> None:
        """It is dead from the start: the tool that wanted it says so."""
        process = await sandbox.start(["no-such-program"], deadline=patience())
        assert not process.alive
        with pytest.raises(ProcessDied, match="127"):
            await process.request(b"anyone?", patience())

    async def test_kept_process_without_an_answer_is_killed(self, sandbox: Sandbox) -> None:
        """So that a late answer is never taken for the next one. The sandbox stays."""
        process = await sandbox.start(["sleep", "1000"], deadline=patience())
        soon = Deadline.after(0.2, "the question")
        with pytest.raises(DeadlineReached) as reached:
            await process.request(b"anyone?", soon)
        assert reached.value.deadline is soon
        assert not process.alive
        with pytest.raises(ProcessDied):
            await process.request(b"anyone?", patience())
        assert (await run(sandbox, "true")).exit_code == 0

    async def test_request_is_one_line(self, sandbox: Sandbox) -> None:
        async with await sandbox.start(["cat"], deadline=patience()) as process:
            with pytest.raises(ValueError, match="line"):
                await process.request(b"two\nlines", patience())
            assert await process.request(b"one", patience()) == b"one"

    # Snapshots taken back, and what the sandbox says of itself.

    async def test_restored_workspace_is_the_snapshot(self, sandbox: Sandbox) -> None:
        """Exactly: what was made since is gone, what was changed or removed is back."""
        blobs = InMemoryBlobs()
        await sandbox.write("caf\udce9", os.urandom(700_000))
        before = await sandbox.snapshot(blobs)
        await sandbox.write("new/deep/file", b"new")
        await sandbox.write("a.txt", b"changed")
        await sandbox.restore(before, blobs)
        assert await sandbox.snapshot(blobs) == before
        assert {each.name for each in await sandbox.list()} == {"a.txt", "folder", "caf\udce9"}
        assert (await run(sandbox, "cat", "folder/b.txt")).stdout.head == b"beta\n"
        await sandbox.restore({}, blobs)
        assert await sandbox.list() == []

    async def test_restoring_what_cannot_be(self, sandbox: Sandbox) -> None:
        """A blob that is missing, and a path that leads out."""
        blobs = InMemoryBlobs()
        spill = blobs.put(b"x")
        with pytest.raises(DamagedJournal):
            await sandbox.restore({"f": Spill(sha256="0" * 64, size_bytes=1)}, blobs)
        with pytest.raises(PermissionError):
            await sandbox.restore({"../f": spill}, blobs)
        await sandbox.restore({"f": spill}, blobs)
        assert await sandbox.read("f") == b"x"

    async def test_labels_can_be_changed(self, sandbox: Sandbox) -> None:
        """It goes on as before."""
        await sandbox.relabel({"episode": "ü"})
        assert await sandbox.read("a.txt") == b"alpha\n"

    async def test_network_is_none_unless_hosts_are_named(self, sandbox: Sandbox) -> None:
        state = await sandbox.network_state()
        assert state.access is NetworkAccess.NONE, state.detail
        assert state.interfaces == ()
        assert state.detail

    async def test_named_hosts_are_an_allow_list(self, provider: SandboxProvider) -> None:
        """Measured from inside: there is a way to the proxy, and no other one."""
        async with await provider.lease(SandboxSpec(network=("example.org",)), patience()) as sandbox:
            state = await sandbox.network_state()
            assert state.access is NetworkAccess.ALLOW_LIST, state.detail
            assert state.interfaces == ()

    async def test_hosts_that_are_none(self, provider: SandboxProvider) -> None:
        with pytest.raises(ConfigError, match="no host of an allow-list"):
            await provider.lease(SandboxSpec(network=("http://example.org/",)), patience())

    async def test_usage_counts_what_is_there(self, sandbox: Sandbox) -> None:
        """Three files in two folders; a process while it lives."""
        before = await sandbox.usage()
        assert before.cpu_s >= 0
        assert (before.processes, before.workspace_files) == (0, 5)
        await sandbox.write("large", bytes(500_000))
        async with await sandbox.spawn(["cat"], deadline=patience()):
            during = await sandbox.usage()
        assert (during.processes, during.workspace_files) == (1, 6)
        assert during.workspace_bytes >= before.workspace_bytes + 500_000
        assert during.memory_bytes is None or during.memory_bytes > 0
        assert during.cpu_s >= before.cpu_s
        assert (await sandbox.usage()).processes == 0

    # The end.

    async def test_stopping_processes_spares_the_workspace(self, sandbox: Sandbox) -> None:
        process = await sandbox.start(["cat"], deadline=patience())
        background = await sandbox.spawn(["sleep", "1000"], deadline=patience())
        await sandbox.write("kept", b"content")
        await sandbox.stop_processes()
        assert await background.wait(patience()) == 137
        assert await background.read(patience()) is None
        with pytest.raises(ProcessDied):
            await process.request(b"anyone?", patience())
        assert not process.alive
        assert await sandbox.read("kept") == b"content"
        assert (await run(sandbox, "cat", "kept")).stdout.head == b"content"

    async def test_closed_sandbox_says_so(self, sandbox: Sandbox) -> None:
        process = await sandbox.start(["cat"], deadline=patience())
        background = await sandbox.spawn(["cat"], deadline=patience())
        await sandbox.aclose()
        await sandbox.aclose()
        assert not process.alive
        assert not background.alive
        await process.aclose()
        for call in (
            run(sandbox, "true"),
            sandbox.read("a.txt"),
            sandbox.write("a.txt", b""),
            sandbox.list(),
            sandbox.snapshot(InMemoryBlobs()),
            sandbox.stop_processes(),
            sandbox.start(["cat"], deadline=patience()),
            process.request(b"x", patience()),
            sandbox.spawn(["cat"], deadline=patience()),
            sandbox.restore({}, InMemoryBlobs()),
            sandbox.network_state(),
            sandbox.relabel({"episode": "1"}),
            sandbox.usage(),
            background.read(patience()),
            background.write(b"x", patience()),
            background.close_stdin(),
            background.wait(patience()),
        ):
            with pytest.raises(SandboxFault):
                await call
        await background.aclose()
