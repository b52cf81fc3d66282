"""What a further turn of history costs: long episodes in step, their CPU turn by turn."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from statistics import linear_regression

from agentenv.core.deadline import Deadline
from agentenv.core.policy import Policy, PolicyIdentity, Reply, SampleRequest

from tests.bench.bare import BareLoop, Listening, by_aiohttp
from tests.bench.engine import serving, started
from tests.bench.scale import Scale
from tests.bench.table import Row
from tests.bench.timing import interleaved
from tests.bench.workload import Shape, Workload

SECTION = "history"


class InStep(Policy):
    """Holds every episode back until all of them have come to the same turn, and reads the clock then."""

    def __init__(self, inner: Policy, *, episodes: int, turns: int) -> None:
        self._inner = inner
        self._episodes = episodes
        self._here = [0] * turns
        self._all_here = [asyncio.Event() for _ in range(turns)]
        self.clock = [0.0] * turns
        """CPU seconds of this process when the last episode came to the turn."""

    @property
    def identity(self) -> PolicyIdentity:
        return self._inner.identity

    async def start(self) -> PolicyIdentity:
        return await self._inner.start()

    async def aclose(self) -> None:
        """Nothing: the inner policy belongs to whoever made it."""

    async def sample(self, request: SampleRequest, deadline: Deadline) -> Reply:
        turn = request.turn
        self._here[turn] += 1
        if self._here[turn] == self._episodes:
            self.clock[turn] = time.process_time()
            self._all_here[turn].set()
        await self._all_here[turn].wait()
        return await self._inner.sample(request, deadline)

    def ms_per_turn(self) -> list[float]:
        """(turns - 1,) CPU of each turn, in milliseconds."""
        ends = zip(self.clock, self.clock[1:], strict=False)
        return [(end - begin) / self._episodes * 1e3 for begin, end in ends]


async def measure(workload: Workload, scale: Scale) -> list[Row]:
    """Fit a line through the CPU of each turn; of several runs the least of each turn counts."""
    shape = Shape(episodes=scale.history_episodes, at_once=scale.history_episodes, turns=scale.history_turns)
    short = Shape(episodes=scale.history_episodes, at_once=scale.history_episodes)
    async with serving(workload) as stub, started(workload, stub.url) as harness:
        listening = Listening(harness.policy)
        await harness.run(short, lambda _: listening)
        bodies = list(listening.bodies.values())
        costs = await interleaved(
            {"aiohttp": (lambda: by_aiohttp(stub.url, BareLoop(bodies, short.at_once)), short.calls)},
            rounds=max(1, scale.rounds // 4),
        )
        runs: list[list[float]] = []
        for _ in range(max(2, scale.rounds // 4)):
            in_step = InStep(harness.policy, episodes=shape.episodes, turns=shape.turns)
            await harness.run(shape, partial(_as, in_step))
            runs.append(in_step.ms_per_turn())
    least = [min(values) for values in zip(*runs, strict=True)]
    slope = linear_regression(range(len(least)), least).slope
    return [
        Row(
            name=f"CPU per further turn of history, over {shape.turns} turns",
            value=slope,
            unit="ms",
            digits=4,
            limit=0.01,
            section=SECTION,
        ),
        Row(
            name="the same, to one call of a bare aiohttp loop",
            value=slope / costs.ms("aiohttp"),
            digits=3,
            section=SECTION,
        ),
    ]


def _as(policy: Policy, _: Policy) -> Policy:
    return policy
