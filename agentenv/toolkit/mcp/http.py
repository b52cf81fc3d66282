"""The transport to a server over streamable HTTP, with a bound on what it may answer. Needs the SDK."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from agentenv.errors import ConfigError
from agentenv.toolkit.mcp.lines import MOST_MESSAGE_BYTES
from agentenv.toolkit.mcp.servers import HttpAddress

MOST_RESPONSE_BYTES = 4 * MOST_MESSAGE_BYTES
"""Of one HTTP response, which may be a stream of many messages."""
_CONNECT_S = 10.0


def http_client(address: HttpAddress) -> httpx2.AsyncClient:
    """Make the client of one connection; whoever made it closes it. Times are bounded by the deadlines of calls.

    Raises:
        ConfigError: A variable that should hold a header's value is not set.
    """
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **_headers(address.headers_env)},
        timeout=httpx2.Timeout(None, connect=_CONNECT_S),
        transport=_Bounded(httpx2.AsyncHTTPTransport()),
    )


def http_transport(address: HttpAddress, client: httpx2.AsyncClient) -> AbstractAsyncContextManager[Any]:
    """Make the transport of one connection."""
    return streamable_http_client(address.url, http_client=client, max_sse_event_size=MOST_MESSAGE_BYTES)


def _headers(headers_env: Mapping[str, str]) -> dict[str, str]:
    missing = [variable for variable in headers_env.values() if not os.environ.get(variable)]
    if missing:
        raise ConfigError(f"The environment variable {missing[0]}, for a header of an MCP server, is not set")
    return {header: os.environ[variable] for header, variable in headers_env.items()}


class _Bounded(httpx2.AsyncBaseTransport):
    """Ends a response that is longer than any honest one."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        coding = response.headers.get("content-encoding", "identity")
        if coding != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError(f"the server answered in the coding {coding!r}, which was not asked for")
        assert isinstance(response.stream, httpx2.AsyncByteStream), "an asynchronous client gets asynchronous streams"
        response.stream = _BoundedStream(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for piece in self._inner:
            total += len(piece)
            if total > MOST_RESPONSE_BYTES:
                raise httpx2.RemoteProtocolError(
                    f"the server sent a response of more than {MOST_RESPONSE_BYTES:,} bytes"
                )
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
