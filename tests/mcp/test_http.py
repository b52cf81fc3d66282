"""Servers over HTTP that are slow, die, or flood.

Promises: as over stdio; a call that is given up is given up at the server, too.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from agentenv.core.deadline import Deadline
from agentenv.errors import ConfigError, ToolFault
from agentenv.records.axes import CallStatus
from agentenv.toolkit.mcp import McpServer, mcp_http
from agentenv.toolkit.mcp.connecting import describe
from agentenv.toolkit.mcp.servers import HttpAddress

from tests.mcp.kit import PATIENCE_S, episode

pytestmark = pytest.mark.mcp


async def server_at(url: str, *, timeout_s: float = 60.0) -> McpServer:
    described = await describe("remote", HttpAddress(url=url), None, Deadline.after(PATIENCE_S, "describing"))
    return mcp_http("remote", url, described=described, timeout_s=timeout_s)


@asynccontextmanager
async def serving(*tools: str) -> AsyncGenerator[tuple[str, asyncio.subprocess.Process]]:
    """Serve tools of ours in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agentenv", "serve-tools", *tools, "--http", "0"), stderr=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        found = re.search(r"at (http://\S+)", line)
        assert found, line
        yield found[1], process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def test_a_call_given_up_is_given_up_at_the_server() -> None:
    """``shell`` runs one command at a time: the next one would wait for one that was not stopped."""
    async with serving("shell") as (url, _), episode(await server_at(url, timeout_s=5.0)) as tools:
        stopped = await tools.call("shell", command="sleep 100")
        assert stopped.status is CallStatus.TIMEOUT
        assert (await tools.call("shell", command="echo next")).text == "next\n[exit code 0]"


async def test_a_server_that_is_gone_is_unavailable() -> None:
    async with serving("calculator") as (url, process), episode(server := await server_at(url)) as tools:
        assert (await tools.call("calculator", expression="1 + 1")).text == "2"
        process.kill()
        await process.wait()
        for _ in range(2):
            gone = await tools.call("calculator", expression="1 + 1")
            assert gone.status is CallStatus.UNAVAILABLE
            assert "the server 'remote' could not carry out the call" in gone.text
    with pytest.raises(ToolFault, match="MCP server 'remote'") as fault:
        async with episode(mcp_http("remote", url, described=server.described)):
            pass
    assert fault.value.retryable, "it may be back when the episode is tried again"


@asynccontextmanager
async def answering(head: bytes, body: bytes, times: int) -> AsyncGenerator[str]:
    """Answer every request alike, the body ``times`` times."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\nConnection: close\r\n\r\n")
        try:
            for _ in range(times):
                writer.write(body)
                await writer.drain()
        except ConnectionError:
            pass  # whoever asked has had enough
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


@pytest.mark.parametrize(
    ("head", "body", "times"),
    [
        (b"Content-Type: application/json", b" " * (1 << 20), 1 << 20),
        (b"Content-Type: text/event-stream", b"data: " + b"x" * (1 << 20), 1 << 20),
        (b"Content-Type: application/json\r\nContent-Encoding: gzip", b"\x1f\x8b", 1),
        (b"Content-Type: text/html", b"<h1>Welcome</h1>", 1),
        (b"Content-Type: application/json", b'{"jsonrpc": "2.0"}', 1),
    ],
    ids=["json without end", "event without end", "a coding not asked for", "a web page", "no message"],
)
async def test_what_is_no_server_is_refused(head: bytes, body: bytes, times: int) -> None:
    async with answering(head, body, times) as url:
        with pytest.raises(ConfigError, match="MCP server 'remote'"):
            await server_at(url)


async def test_a_header_whose_variable_is_not_set_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    address = HttpAddress(url="http://127.0.0.1:1/mcp", headers_env={"Authorization": "NO_SUCH_TOKEN"})
    with pytest.raises(ConfigError, match="variable NO_SUCH_TOKEN, for a header of an MCP server, is not set"):
        await describe("remote", address, None, Deadline.after(PATIENCE_S, "describing"))
