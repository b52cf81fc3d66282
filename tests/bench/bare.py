"""Bare loops: they post the bodies of the same run and read the answers, and do nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from agentenv.core.deadline import Deadline
from agentenv.core.policy import Policy, PolicyIdentity, Reply, SampleRequest
from agentenv.policies.http_client import HttpClient, read_address
from agentenv.policies.vllm_wire import GenerateRoute, WireCall, encode_prompt

PATH = GenerateRoute.path
Post = Callable[[bytes], Awaitable[int]]
"""Sends a body and reads the whole answer; gives the length of it."""


class Listening(Policy):
    """Passes everything on, and writes down the body of every request."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner
        self._route = GenerateRoute(inner.identity.model)
        self.bodies: dict[str, list[bytes]] = {}
        """Episode to the bodies of its requests, in order."""

    @property
    def identity(self) -> PolicyIdentity:
        return self._inner.identity

    async def start(self) -> PolicyIdentity:
        return await self._inner.start()

    async def aclose(self) -> None:
        """Nothing: the inner policy belongs to whoever made it."""

    async def sample(self, request: SampleRequest, deadline: Deadline) -> Reply:
        prompt = encode_prompt(request.prompt_ids.tolist())
        call = WireCall(prompt, request.sampling, request.sampling.max_tokens, request.seed, request.request_id)
        episode = request.request_id.rpartition(".")[0]
        self.bodies.setdefault(episode, []).append(self._route.encode(call))
        return await self._inner.sample(request, deadline)


@dataclass(frozen=True, slots=True)
class BareLoop:
    """Episodes one after another in each of ``at_once`` tasks, as the collector has them."""

    episodes: list[list[bytes]]
    at_once: int
    lengths: list[int] = field(default_factory=list[int])
    """Of the answers."""

    async def run(self, post: Post) -> None:
        queue = iter(self.episodes)
        await asyncio.gather(*(self._work(queue, post) for _ in range(self.at_once)))

    async def _work(self, queue: Iterator[list[bytes]], post: Post) -> None:
        for bodies in queue:
            for body in bodies:
                self.lengths.append(await post(body))


Client = Callable[[str, BareLoop], Awaitable[None]]
"""Runs a loop against the engine at an address."""


async def by_aiohttp(url: str, loop: BareLoop) -> None:
    """Run it over aiohttp, as anyone would write it."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers={"Content-Type": "application/json"}) as session:

        async def post(body: bytes) -> int:
            async with session.post(url + PATH, data=body) as response:
                assert response.status == 200, await response.text()
                return len(await response.read())

        await loop.run(post)


async def by_httpx(url: str, loop: BareLoop) -> None:
    """Run it over httpx, as anyone would write it."""
    import httpx

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None, headers={"Content-Type": "application/json"}) as client:

        async def post(body: bytes) -> int:
            response = await client.post(url + PATH, content=body)
            assert response.status_code == 200, response.text
            return len(response.content)

        await loop.run(post)


async def by_ours(url: str, loop: BareLoop) -> None:
    """Run it over the client of the harness."""
    headers = {"Content-Type": "application/json"}
    client = HttpClient(read_address(url), headers=headers, max_connections=loop.at_once, idle_s=4.0)

    async def post(body: bytes) -> int:
        answer = await client.request("POST", PATH, body)
        assert answer.status == 200, answer.body
        return len(answer.body)

    try:
        await loop.run(post)
    finally:
        await client.aclose()
