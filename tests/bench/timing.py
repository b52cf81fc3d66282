"""How cost is measured: CPU time of this process, of runs that take turns, the least of each.

CPU time is not free of others: they take caches and the other half of a core. So runs take turns, that a busy moment
hits all alike, and of many runs the least disturbed counts, as in `timeit`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

Run = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU per call of several runs, in milliseconds, round by round."""

    rounds: Mapping[str, list[float]]

    def ms(self, name: str) -> float:
        """Give the least that one run took."""
        return min(self.rounds[name])

    def ratio(self, name: str, base: str) -> float:
        """Give one run's cost in units of another's."""
        return self.ms(name) / self.ms(base)


async def interleaved(runs: Mapping[str, tuple[Run, int]], *, rounds: int) -> Costs:
    """Run all of them in turn, ``rounds`` times.

    Args:
        runs: Name to what is run, and how many calls that makes.
        rounds: How often.
    """
    costs: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        order = list(runs.items())
        for name, (run, calls) in order if number % 2 == 0 else reversed(order):
            gc.collect()
            began = time.process_time()
            await run()
            costs[name].append((time.process_time() - began) / calls * 1e3)
    return Costs(costs)
