"""``python -m tests.bench``: the figures of speed and memory, as ratios within one run."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from tests.bench import cpu, history, memory, rate, sandboxes, tokens
from tests.bench.scale import FULL, TINY, Scale
from tests.bench.table import Row, table
from tests.bench.workload import Workload, workload

SECTIONS: Mapping[str, Callable[[Workload, Scale], Awaitable[list[Row]]]] = {
    module.SECTION: module.measure for module in (cpu, history, tokens, memory, rate, sandboxes)
}


async def bench(sections: Sequence[str], scale: Scale) -> list[Row]:
    """Measure some sections, in order."""
    rows: list[Row] = []
    with workload() as made:
        for name in sections:
            print(f"{name} …", file=sys.stderr, flush=True)
            rows += await SECTIONS[name](made, scale)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; the exit code is 0 whatever it says, because a busy machine proves nothing."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", choices=SECTIONS, action="append", help="a section; may be given again")
    parser.add_argument("--rounds", type=int, default=FULL.rounds, help="repetitions, taking turns")
    parser.add_argument("--tiny", action="store_true", help="just see that it runs; the figures mean nothing")
    given = parser.parse_args(arguments)
    scale = TINY if given.tiny else replace(FULL, rounds=given.rounds)
    rows = asyncio.run(bench(given.only or list(SECTIONS), scale))
    print(table(rows))
    load = os.getloadavg()[0]
    if load > 1.5:
        print(f"The machine is busy (load {load:.1f}): ratios of CPU suffer a little, rates a lot.")


if __name__ == "__main__":
    main()
