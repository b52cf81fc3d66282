"""The part of the contract suite of sandboxes that is about background processes."""

from __future__ import annotations

import asyncio
import os

import pytest

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.sandbox import (
    Sandbox,
)
from agentenv.core.sandbox_process import BackgroundProcess, ProcessDied
from agentenv.testing.contracts.sandbox_calls import patience, run
from agentenv.testing.contracts.sandbox_fixtures import SandboxFixtures


class BackgroundContract(SandboxFixtures):
    """What every sandbox promises of processes that stream."""

    async def test_background_process_streams_both_ways(self, sandbox: Sandbox) -> None:
        """All bytes come as they went, while commands run beside it; the end of its input ends it."""
        async with await sandbox.spawn(["cat"], deadline=patience()) as process:
            for piece in (b"one", b"\xff\x00two\n", bytes(range(256))):
                await process.write(piece, patience())
                assert await _read(process, len(piece)) == piece
            assert process.alive
            assert (await run(sandbox, "echo", "beside")).stdout.head == b"beside\n"
            await process.close_stdin()
            await process.close_stdin()
            assert await process.read(patience()) is None
            assert await process.wait(patience()) == 0
            assert not process.alive
            assert await process.read(patience()) is None
            with pytest.raises(ProcessDied):
                await process.write(b"late", patience())

    async def test_background_output_is_kept_after_the_end(self, sandbox: Sandbox) -> None:
        async with await sandbox.spawn(["echo", "hello"], deadline=patience()) as process:
            assert await process.wait(patience()) == 0
            assert await _read(process, 6) == b"hello\n"
            assert await process.read(patience()) is None
        async with await sandbox.spawn(["cat", "b.txt"], deadline=patience(), cwd="folder") as process:
            assert await _read(process, 5) == b"beta\n"
        async with await sandbox.spawn(["printenv", "GIVEN"], deadline=patience(), env={"GIVEN": "x"}) as process:
            assert await _read(process, 2) == b"x\n"

    async def test_background_exit_codes(self, sandbox: Sandbox) -> None:
        """One that cannot be started has ended when it is there, and says why on its stderr."""
        async with await sandbox.spawn(["false"], deadline=patience()) as process:
            assert await process.wait(patience()) == 1
        async with await sandbox.spawn(["no-such-program"], deadline=patience()) as process:
            assert not process.alive
            assert await process.wait(patience()) == 127
            piece = await process.read(patience())
            assert piece is not None
            assert piece[0] == "err"
            assert b"no-such-program" in piece[1]
            assert await process.read(patience()) is None
        async with await sandbox.spawn(["pwd"], deadline=patience(), cwd="missing") as process:
            assert await process.wait(patience()) == 126

    async def test_what_is_not_read_is_held_back(self, sandbox: Sandbox) -> None:
        """A process whose output nobody reads takes no more input, and goes on when somebody does."""
        content = os.urandom(3_000_000)
        async with await sandbox.spawn(["cat"], deadline=patience()) as process:
            writing = asyncio.ensure_future(process.write(content, patience()))
            soon = Deadline.after(0.3, "a look")
            with pytest.raises(DeadlineReached) as reached:
                await process.wait(soon)
            assert reached.value.deadline is soon
            assert not writing.done()
            assert await _read(process, len(content)) == content
            await writing

    async def test_reader_out_of_time_loses_nothing(self, sandbox: Sandbox) -> None:
        """Nor does one that is cancelled."""
        async with await sandbox.spawn(["cat"], deadline=patience()) as process:
            soon = Deadline.after(0.05, "a look")
            with pytest.raises(DeadlineReached) as reached:
                await process.read(soon)
            assert reached.value.deadline is soon
            reading = asyncio.ensure_future(process.read(patience()))
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await process.write(b"there", patience())
            assert await _read(process, 5) == b"there"

    async def test_writer_out_of_time(self, sandbox: Sandbox) -> None:
        """The very object that fired is named; the process goes on."""
        async with await sandbox.spawn(["cat"], deadline=patience()) as process:
            soon = Deadline.after(0.3, "a write")
            with pytest.raises(DeadlineReached) as reached:
                await process.write(bytes(3_000_000), soon)
            assert reached.value.deadline is soon
            assert process.alive
            assert await process.read(patience()) is not None

    async def test_closing_a_background_process_ends_it(self, sandbox: Sandbox) -> None:
        """Also for whoever waits for its output."""
        process = await sandbox.spawn(["sleep", "1000"], deadline=patience())
        reading = asyncio.ensure_future(process.read(patience()))
        await asyncio.sleep(0)
        await process.aclose()
        await process.aclose()
        assert not process.alive
        assert await reading is None
        assert await process.read(patience()) is None
        assert await process.wait(patience()) == 137
        with pytest.raises(ProcessDied):
            await process.write(b"x", patience())
        await process.close_stdin()
        assert (await run(sandbox, "true")).exit_code == 0

    async def test_deadline_of_a_spawn(self, sandbox: Sandbox) -> None:
        """As for a command: nothing of it runs, and the sandbox goes on."""
        late = Deadline.after(-1.0, "a start")
        with pytest.raises(DeadlineReached) as reached:
            await sandbox.spawn(["cat"], deadline=late)
        assert reached.value.deadline is late
        assert (await run(sandbox, "true")).exit_code == 0
        assert (await sandbox.usage()).processes == 0


async def _read(process: BackgroundProcess, size: int) -> bytes:
    """Read so many bytes of stdout."""
    content = b""
    while len(content) < size:
        piece = await process.read(patience())
        assert piece is not None, f"only {len(content)} of {size} bytes came"
        assert piece[0] == "out", piece
        content += piece[1]
    return content
