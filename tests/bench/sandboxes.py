"""Sandboxes: what a command and a start cost, many at once, and what a flood costs the harness.

Times are by the clock, because most of a command's cost is not this process's. Runs take turns and the least disturbed
of each counts, as everywhere here.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Sandbox, SandboxProvider, SandboxSpec
from agentenv.sandboxes.pool import PooledProvider
from agentenv.sandboxes.providers import PROVIDERS
from agentenv.storage.blobs import FolderBlobs

from tests.bench.scale import Scale
from tests.bench.table import Row
from tests.bench.workload import Workload

SECTION = "sandboxes"
KINDS = ("bwrap", "namespaces", "docker")

_COMMANDS = 20
"""Of each round."""
_SPEC = SandboxSpec(files={"a.txt": b"alpha\n"}, labels={"run": "bench", "episode": "e0"})
_PATIENCE_S = 300.0
_FIRST_FLOOD_BYTES = 64 << 20
"""After which whatever a flood allocates once is there."""


async def measure(_workload: Workload, scale: Scale) -> list[Row]:
    """Measure every kind of sandbox that works here; of the others a row says why there are no figures."""
    rows: list[Row] = []
    for kind in KINDS:
        async with PROVIDERS[kind]() as provider:
            status = await provider.probe()
            if not status.works:
                why = status.detail.partition(" Remedy:")[0]
                rows.append(Row(name=f"{kind}: {why}", absent="no figures", section=SECTION))
                continue
            for figure in (_command, _crowd):
                rows += await figure(kind, provider, scale)
        rows += await _warm(kind, scale)
        rows += await _flood(kind, scale)
    return rows


async def _command(kind: str, provider: SandboxProvider, scale: Scale) -> list[Row]:
    """Take turns with a bare process, one by one: a busy moment is longer than both."""
    ours = bare = float("inf")
    async with await provider.lease(_SPEC, _patience()) as sandbox:
        for _ in range(_COMMANDS * scale.rounds):
            ours = min(ours, await _seconds(_run(sandbox)))
            bare = min(bare, await _seconds(_bare()))
    name = f"{kind}: a command in a kept sandbox, to a bare process"
    return [
        Row(name=name, value=ours / bare, limit=3.0, section=SECTION),
        Row(name=f"{kind}: it took, here and now", value=ours * 1e3, unit="ms", section=SECTION),
    ]


async def _run(sandbox: Sandbox) -> None:
    done = await sandbox.run(["true"], deadline=_patience(), timeout_s=_PATIENCE_S)
    assert done.exit_code == 0, done


async def _bare() -> None:
    subprocess.run(["true"], check=True)


async def _crowd(kind: str, provider: SandboxProvider, scale: Scale) -> list[Row]:
    """Start all at once, and let every one have its own command while all are there."""
    there = asyncio.Barrier(scale.at_once)

    async def one(number: int) -> None:
        async with await provider.lease(_SPEC, _patience()) as sandbox:
            await there.wait()
            said = await sandbox.run(["echo", f"{number}"], deadline=_patience(), timeout_s=_PATIENCE_S)
            assert said.stdout.head == b"%d\n" % number, said

    async def guarded(number: int) -> Exception | None:
        try:
            await one(number)
        except Exception as error:  # noqa: BLE001 - it is what is counted
            await there.abort()
            print(f"{kind}: {error!r}", file=sys.stderr)
            return error
        return None

    errors = [error for error in await asyncio.gather(*map(guarded, range(scale.at_once))) if error is not None]
    name = f"{kind}: {scale.at_once} sandboxes at once, errors"
    return [Row(name=name, value=len(errors), unit="", digits=0, limit=0, section=SECTION)]


async def _warm(kind: str, scale: Scale) -> list[Row]:
    """Lease from a pool that has one ready, with files and labels as an episode has them."""
    warm = cold = float("inf")
    async with PooledProvider(PROVIDERS[kind](), warm=1) as pool, PROVIDERS[kind]() as provider:
        pool.expect(_SPEC)
        for _ in range(scale.rounds):
            cold = min(cold, await _seconds(_leased(provider)))
            await pool.ready()
            warm = min(warm, await _seconds(_leased(pool)))
    return [
        Row(name=f"{kind}: a sandbox from the warm pool", value=warm * 1e3, unit="ms", limit=5.0, section=SECTION),
        Row(name=f"{kind}: one that has to start", value=cold * 1e3, unit="ms", digits=0, section=SECTION),
    ]


async def _flood(kind: str, scale: Scale) -> list[Row]:
    """Compare, in processes of their own, the peak of resident memory in a flood with that before it."""
    growths = [await _growth(kind, scale.flood_bytes) for _ in range(min(scale.rounds, 3))]
    name = f"{kind}: a flood of {scale.flood_bytes / 1e9:.3g} GB, kept on disk: memory of the harness"
    return [Row(name=name, value=median(growths) / 1e6, unit="MB", digits=1, limit=8.0, section=SECTION)]


async def _growth(kind: str, flood_bytes: int) -> int:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.sandboxes", kind, str(flood_bytes)), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    if process.returncode != 0:
        raise AssertionError(f"the flooded process ended with {process.returncode}")
    return int(said)


async def _flooded(kind: str, flood_bytes: int) -> int:
    """Give the bytes by which the peak in a flood is above what was resident before it."""
    with TemporaryDirectory(prefix="agentenv-bench-") as folder:
        blobs = FolderBlobs(Path(folder))
        async with PROVIDERS[kind]() as provider, await provider.lease(_SPEC, _patience()) as sandbox:

            async def flood(size: int) -> None:
                command = ["head", "-c", str(size), "/dev/zero"]
                done = await sandbox.run(command, deadline=_patience(), timeout_s=_PATIENCE_S, blobs=blobs)
                assert done.stdout.spill is not None, done
                assert done.stdout.spill.size_bytes == size, done

            await flood(min(_FIRST_FLOOD_BYTES, flood_bytes))
            # Source: proc(5), clear_refs: 5 sets the peak back to what is resident now.
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            before = _resident("VmRSS")
            await flood(flood_bytes)
            return _resident("VmHWM") - before


def _resident(field: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    assert found is not None, f"Linux reports {field}"
    return int(found.group(1)) * 1024


async def _leased(provider: SandboxProvider) -> Sandbox:
    return await provider.lease(_SPEC, _patience())


async def _seconds(work: Awaitable[object]) -> float:
    """Take the time of some work; a sandbox that comes of it is closed afterwards."""
    began = time.perf_counter()
    made = await work
    took = time.perf_counter() - began
    if isinstance(made, Sandbox):
        await made.aclose()
    return took


def _patience() -> Deadline:
    return Deadline.after(_PATIENCE_S, "the benchmark's patience")


if __name__ == "__main__":
    print(asyncio.run(_flooded(sys.argv[1], int(sys.argv[2]))))
