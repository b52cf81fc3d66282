"""Replies per second on one core, where every reply takes the engine a fixed time."""

from __future__ import annotations

import time
from collections.abc import Awaitable

from tests.bench.bare import BareLoop, Listening, by_aiohttp
from tests.bench.engine import one_core_each, serving, started
from tests.bench.scale import Scale
from tests.bench.table import Row
from tests.bench.workload import Shape, Workload

SECTION = "rate"
LATENCY_S = 0.05


async def measure(workload: Workload, scale: Scale) -> list[Row]:
    """Run with the client on one core and the engine on another; the best of several runs counts.

    The bare loop beside it says how much of the ideal rate this machine and the engine let anyone have. On a machine
    that is busy with other things both figures are too low, and never too high.
    """
    shape = Shape(episodes=scale.rate_episodes, at_once=scale.at_once)
    ideal = scale.at_once / LATENCY_S
    async with (
        serving(workload, latency_ms=LATENCY_S * 1e3) as stub,
        started(workload, stub.url) as harness,
        one_core_each(stub.pid) as apart,
    ):
        listening = Listening(harness.policy)
        await harness.run(shape, lambda _: listening)
        bodies = list(listening.bodies.values())
        ours = bare = 0.0
        for _ in range(max(1, scale.rounds // 3)):
            ours = max(ours, shape.calls / await _seconds(harness.run(shape)))
            bare = max(bare, shape.calls / await _seconds(by_aiohttp(stub.url, BareLoop(bodies, shape.at_once))))
    where = "one core" if apart else "a core shared with the engine"
    return [
        Row(
            name=f"of the ideal rate, {LATENCY_S * 1e3:g} ms and {scale.at_once} in flight, on {where}",
            value=ours / ideal * 100,
            unit="%",
            digits=0,
            limit=90.0,
            at_least=True,
            section=SECTION,
        ),
        Row(name="a bare aiohttp loop's part of it", value=bare / ideal * 100, unit="%", digits=0, section=SECTION),
    ]


async def _seconds(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began
