"""Memory per episode in flight: the peak of whole client processes that differ in nothing but how many they have."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from statistics import median

from tests.bench.engine import serving, started
from tests.bench.scale import Scale
from tests.bench.table import Row
from tests.bench.workload import Shape, Workload, existing

SECTION = "memory"


async def measure(workload: Workload, scale: Scale) -> list[Row]:
    """Compare peaks of resident memory, everything counted: Python, sockets, SQLite, tokenizer."""
    differences: list[float] = []
    async with serving(workload) as stub:
        for _ in range(min(scale.rounds, 3)):
            few = await _peak_kib(workload, stub.url, scale.at_once)
            many = await _peak_kib(workload, stub.url, scale.at_once + scale.many_at_once)
            differences.append((many - few) * 1.024 / scale.many_at_once)
    name = f"memory per episode in flight, beyond the first {scale.at_once}, for {scale.many_at_once}"
    return [Row(name=name, value=median(differences), unit="kB", digits=1, limit=60.0, section=SECTION)]


async def _peak_kib(workload: Workload, url: str, episodes: int) -> int:
    """Run one client process to its end."""
    arguments = (str(workload.folder), url, str(episodes))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.memory", *arguments, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    if process.returncode != 0:
        raise AssertionError(f"the client process ended with {process.returncode}")
    return int(said)


async def _client(folder: Path, url: str, episodes: int) -> None:
    async with started(existing(folder, name=f"client{os.getpid()}"), url) as harness:
        await harness.run(Shape(episodes=episodes, at_once=episodes))
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak is not None, "Linux reports the peak of resident memory"
    print(peak.group(1))


if __name__ == "__main__":
    asyncio.run(_client(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
