"""Replies per second on one core, where every reply takes the engine a fixed time."""

from __future__ import annotations

import time

from tests.bench.engine import one_core_each, serving, started
from tests.bench.scale import Scale
from tests.bench.table import Row
from tests.bench.workload import Shape, Workload

SECTION = "rate"
LATENCY_S = 0.05


async def measure(workload: Workload, scale: Scale) -> list[Row]:
    """Run with the client on one core and the engine on another; the best of several runs counts.

    On a machine that is busy with other things the figure is too low, and never too high.
    """
    shape = Shape(episodes=scale.rate_episodes, at_once=scale.at_once)
    best = 0.0
    async with (
        serving(workload, latency_ms=LATENCY_S * 1e3) as stub,
        started(workload, stub.url) as harness,
        one_core_each(stub.pid) as apart,
    ):
        for _ in range(max(1, scale.rounds // 3)):
            began = time.perf_counter()
            await harness.run(shape)
            best = max(best, shape.calls / (time.perf_counter() - began))
    ideal = scale.at_once / LATENCY_S
    where = "one core" if apart else "a core shared with the engine"
    return [
        Row(
            name=f"of the ideal rate, {LATENCY_S * 1e3:g} ms and {scale.at_once} in flight, on {where}",
            value=best / ideal * 100,
            unit="%",
            digits=0,
            limit=90.0,
            at_least=True,
            section=SECTION,
        )
    ]
