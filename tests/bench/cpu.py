"""CPU per turn, against loops that do nothing but post the same bodies and read the answers."""

from __future__ import annotations

from functools import partial

from tests.bench.bare import BareLoop, Client, Listening, by_aiohttp, by_httpx, by_ours
from tests.bench.engine import serving, started
from tests.bench.scale import Scale
from tests.bench.table import Row
from tests.bench.timing import Run, interleaved
from tests.bench.workload import Shape, Workload

SECTION = "cpu"


async def measure(workload: Workload, scale: Scale) -> list[Row]:
    """Measure the harness with many and with very many episodes in flight, and bare loops over three clients."""
    few = Shape(episodes=scale.at_once, at_once=scale.at_once)
    many = Shape(episodes=scale.many_at_once, at_once=scale.many_at_once)
    async with serving(workload) as stub, started(workload, stub.url) as harness:
        listening = Listening(harness.policy)
        await harness.run(few, lambda _: listening)
        bodies = list(listening.bodies.values())

        def bare(client: Client) -> tuple[Run, int]:
            return lambda: client(stub.url, BareLoop(bodies, few.at_once)), few.calls

        run = (partial(harness.run, few), few.calls)
        costs = await interleaved({"harness": run, "aiohttp": bare(by_aiohttp)}, rounds=scale.rounds)
        crowd = await interleaved(
            {"harness": run, "many": (partial(harness.run, many), many.calls)}, rounds=_fewer(scale)
        )
        clients = await interleaved(
            {"aiohttp": bare(by_aiohttp), "httpx": bare(by_httpx), "ours": bare(by_ours)}, rounds=_fewer(scale)
        )
    loop = "a bare aiohttp loop's"
    return [
        Row(
            name=f"CPU per turn, {few.at_once} in flight, to {loop}",
            value=costs.ratio("harness", "aiohttp"),
            limit=2.5,
            section=SECTION,
        ),
        Row(
            name=f"the same at {many.at_once} in flight, to that at {few.at_once}",
            value=crowd.ratio("many", "harness"),
            limit=1.2,
            section=SECTION,
        ),
        Row(name=f"a bare httpx loop, to {loop}", value=clients.ratio("httpx", "aiohttp"), section=SECTION),
        Row(name=f"a loop over our own client, to {loop}", value=clients.ratio("ours", "aiohttp"), section=SECTION),
        Row(name="of which one call took, here and now", value=costs.ms("aiohttp"), unit="ms", section=SECTION),
    ]


def _fewer(scale: Scale) -> int:
    return max(1, scale.rounds // 4)
