"""A local server that runs while a test does, and requests to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from agentenv.core.policy import Policy
from agentenv.core.renderer import Renderer
from agentenv.local.server import serve
from agentenv.rendering.loading import byte_renderer

CHATS = byte_renderer()


@asynccontextmanager
async def serving(policy: Policy, renderer: Renderer = CHATS, **options: Any) -> AsyncIterator[str]:
    """Serve while the body runs, and give the address."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    server = asyncio.ensure_future(serve(policy, renderer, port=0, ready=ready.set_result, stop=stop, **options))
    try:
        await asyncio.wait([server, ready], return_when=asyncio.FIRST_COMPLETED)
        yield ready.result() if ready.done() else await server  # type: ignore[func-returns-value]  raises what it did
    finally:
        stop.set()
        await server


async def post(url: str, path: str, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
    """Give status and decoded answer; ``body`` is sent as JSON, or as it is where it is bytes."""
    data = body if isinstance(body, bytes) else None
    content = {"data": data} if data else {"json": body}
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url + path, **content) as reply:
        return reply.status, await reply.json()
