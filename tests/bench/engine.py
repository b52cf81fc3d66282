"""The stub engine in a process of its own, and a harness that is started on it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from agentenv.testing.stub_process import StubProcess

from tests.bench.harness import Harness, vllm_policy
from tests.bench.workload import Workload


@asynccontextmanager
async def serving(workload: Workload, *, latency_ms: float = 0.0) -> AsyncGenerator[StubProcess]:
    """Start the engine; it is gone at the end."""
    async with await StubProcess.start(*workload.engine_arguments, "--latency-ms", str(latency_ms)) as stub:
        yield stub


@asynccontextmanager
async def started(workload: Workload, url: str) -> AsyncGenerator[Harness]:
    """Start the policy: probes are over before anything is measured."""
    async with vllm_policy(url, workload) as policy:
        yield Harness(workload=workload, policy=policy, identity=await policy.start())


@asynccontextmanager
async def one_core_each(server: int) -> AsyncGenerator[bool]:
    """Give this process one core and the server another, for as long as it lasts.

    Gives whether there are two cores to share.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        yield False
        return
    os.sched_setaffinity(server, cores[1:])
    os.sched_setaffinity(0, cores[:1])
    try:
        yield True
    finally:
        os.sched_setaffinity(0, cores)
