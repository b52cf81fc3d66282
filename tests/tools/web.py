"""Web servers on loopback for tests of `http`, found under every name that is asked for."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from agentenv.core.hosts import Address
from agentenv.toolkit import FunctionTool

from agentenv_tools.http import http_tool

Handler = Callable[[bytes], bytes | list[bytes]]
"""A request's head and body to an answer; pieces of a list are sent one by one."""


def anywhere(address: Address) -> bool:
    return True


async def to_loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def answer(body: bytes, *fields: str, status: str = "200 OK") -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *fields])
    return head.encode() + b"\r\n\r\n" + body


class Server:
    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[bytes] = []

    def tool(self, *hosts: str, **options: Any) -> FunctionTool:
        """A tool that finds this server under every name it may ask."""
        listed = [f"{host}:{self.port}" for host in hosts or ("a.test",)]
        return http_tool(*listed, **{"may_connect": anywhere, "resolve": to_loopback, **options})


@asynccontextmanager
async def serving(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            for line in request.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    request += await reader.readexactly(int(line.split(b":")[1]))
            server.requests.append(request)
            given = handler(request)
            for piece in given if isinstance(given, list) else [given]:
                writer.write(piece)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as listener:
        server = Server(listener.sockets[0].getsockname()[1])
        yield server
