"""Checks of what comes out of a command, and of commands that cannot be started."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentenv.core.sandbox import Execution
from agentenv.sandboxes.conformance.check import LIMITS, Bench, Finding, found, patience, with_limits
from agentenv.sandboxes.conformance.inside import command, goes_on

_MIB = 1 << 20
_GROWTH_BYTES = 64 * _MIB
"""Of the harness's memory that is no sign of a flood: whatever else it does meanwhile."""
_LOOKS_S = 0.02


def write_much(total: int, byte: int) -> None:
    """Write so many bytes to stdout."""
    import os

    block, left = bytes([byte]) * (1 << 20), total
    while left:
        left -= os.write(1, block[:left])
    os._exit(0)


async def output_flood_1gb(bench: Bench) -> Finding:
    """Of a gigabyte to stdout both ends are kept, its true length is known, the harness's memory stays flat."""
    return await _flood(bench, total=10**9, byte=0)


async def huge_single_line(bench: Bench) -> Finding:
    """A line of 100 MB without an end is cut like any other output."""
    return await _flood(bench, total=10**8, byte=ord("x"))


async def _flood(bench: Bench, *, total: int, byte: int) -> Finding:
    async with bench.sandbox() as sandbox:
        stdin = b'{"total": %d, "byte": %d}' % (total, byte)
        run = sandbox.run(command(write_much), deadline=patience(), timeout_s=50, stdin=stdin)
        done, growth = await _watched(asyncio.ensure_future(run))
        breaches = await goes_on(sandbox)
    kept = len(done.stdout.head) + len(done.stdout.tail)
    if kept > LIMITS.output_bytes:
        breaches.append(f"{kept:,} bytes were kept, the limit being {LIMITS.output_bytes:,}")
    if done.stdout.total_bytes != total and not done.timed_out:
        breaches.append(f"{done.stdout.total_bytes:,} bytes were counted of {total:,}")
    if growth > _GROWTH_BYTES:
        breaches.append(f"the harness grew by {growth // _MIB} MiB")
    return found(
        breaches, f"{kept:,} of {done.stdout.total_bytes:,} bytes kept; the harness grew by {growth // _MIB} MiB"
    )


async def _watched(running: asyncio.Future[Execution]) -> tuple[Execution, int]:
    """Wait for a command; give by how many bytes this process was larger meanwhile."""
    before = most = _resident()
    while not running.done():
        await asyncio.wait([running], timeout=_LOOKS_S)
        most = max(most, _resident())
    return running.result(), most - before


def _resident() -> int:
    """Give the memory of this process in bytes; 0 where nobody says."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        return 0
    return pages * 4096


async def binary_output(bench: Bench) -> Finding:
    """All 256 bytes come back as they went in, on stdout and stderr."""
    everything = bytes(range(256)) * 2
    async with bench.sandbox() as sandbox:
        done = await sandbox.run("tee /dev/stderr", deadline=patience(), timeout_s=30, stdin=everything)
    streams = {"stdout": done.stdout.head, "stderr": done.stderr.head}
    breaches = [f"{name} was changed: {content!r:.80}" for name, content in streams.items() if content != everything]
    return found(breaches, "every byte came back")


async def stdin_waiter(bench: Bench) -> Finding:
    """A command that reads its stdin is told at once that there is none."""
    async with bench.sandbox() as sandbox:
        done = await sandbox.run("cat; echo read", deadline=patience(), timeout_s=30)
    read = done.stdout.head == b"read\n" and not done.timed_out
    return found([] if read else ["it waited for input until its timeout"], "it read the end of its input")


async def missing_command(bench: Bench) -> Finding:
    """A program that is not there, or is none, is a result: 127, 126."""
    async with bench.sandbox() as sandbox:
        missing = await sandbox.run(["agentenv-no-such-program"], deadline=patience(), timeout_s=30)
        await sandbox.write("data", b"no program\n")
        data = await sandbox.run(["./data"], deadline=patience(), timeout_s=30)
        breaches = await goes_on(sandbox)
    if (missing.exit_code, data.exit_code) != (127, 126):
        breaches.append(f"they ended with {missing.exit_code} and {data.exit_code}")
    return found(breaches, "127 for one that is missing, 126 for a file that is no program")


async def argv_too_long(bench: Bench) -> Finding:
    """Three million bytes of arguments are a failed command, not a failed sandbox."""
    async with bench.sandbox() as sandbox:
        done = await sandbox.run(["echo", "x" * 3_000_000], deadline=patience(), timeout_s=30)
        breaches = await goes_on(sandbox)
    if done.exit_code == 0:
        breaches.append("the command is said to have run")
    said = done.stderr.head.decode(errors="replace").strip()[:80]
    return found(breaches, f"exit code {done.exit_code}: {said}")


async def commands_100_at_once(bench: Bench) -> Finding:
    """A hundred commands at once each get their own output."""
    async with bench.sandbox(with_limits(processes=256)) as sandbox:
        runs = [sandbox.run(["echo", str(number)], deadline=patience(), timeout_s=50) for number in range(100)]
        done = await asyncio.gather(*runs)
    wrong = [number for number, each in enumerate(done) if each.stdout.head != b"%d\n" % number]
    return found([f"{len(wrong)} of them had another's output, or none"] if wrong else [], "all had their own output")
