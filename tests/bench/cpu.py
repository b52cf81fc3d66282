"""CPU per turn, against loops that do nothing but post the same bodies and read the answers."""

from __future__ import annotations

from functools import partial

from tests.bench.bare import BareLoop, Listening, by_aiohttp, by_httpx, by_ours
from tests.bench.engine import serving, started
from tests.bench.scale import Scale
from tests.bench.table import Row
from tests.bench.timing import interleaved
from tests.bench.workload import Shape, Workload

SECTION = "cpu"


async def measure(workload: Workload, scale: Scale) -> list[Row]:
    """Measure the harness with many and with very many episodes in flight, and both bare loops."""
    few = Shape(episodes=scale.episodes, at_once=scale.at_once)
    many = Shape(episodes=scale.many_at_once, at_once=scale.many_at_once)
    async with serving(workload) as stub, started(workload, stub.url) as harness:
        listening = Listening(harness.policy)
        await harness.run(few, lambda _: listening)
        bodies = list(listening.bodies.values())
        some = bodies[: scale.at_once]
        costs = await interleaved(
            {
                "harness": (partial(harness.run, few), few.calls),
                "aiohttp": (lambda: by_aiohttp(stub.url, BareLoop(bodies, few.at_once)), few.calls),
                "many": (partial(harness.run, many), many.calls),
            },
            rounds=scale.rounds,
        )
        clients = await interleaved(
            {
                "aiohttp": (lambda: by_aiohttp(stub.url, BareLoop(some, few.at_once)), sum(map(len, some))),
                "httpx": (lambda: by_httpx(stub.url, BareLoop(some, few.at_once)), sum(map(len, some))),
                "ours": (lambda: by_ours(stub.url, BareLoop(some, few.at_once)), sum(map(len, some))),
            },
            rounds=min(scale.rounds, 3),
        )
    name = f"CPU per turn, {few.at_once} in flight, to a bare aiohttp loop's"
    return [
        Row(name=name, value=costs.ratio("harness", "aiohttp"), limit=2.5, section=SECTION),
        Row(
            name=f"the same at {many.at_once} in flight, to that at {few.at_once}",
            value=costs.ratio("many", "harness"),
            limit=1.2,
            section=SECTION,
        ),
        Row(name="a bare loop over httpx, to aiohttp's", value=clients.ratio("httpx", "aiohttp"), section=SECTION),
        Row(
            name="a bare loop over our own client, to aiohttp's",
            value=clients.ratio("ours", "aiohttp"),
            section=SECTION,
        ),
        Row(
            name="CPU per call of the aiohttp loop, on this machine now",
            value=costs.ms("aiohttp"),
            unit="ms",
            section=SECTION,
        ),
    ]
