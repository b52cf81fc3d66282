"""Servers under test, and connections to them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Sandbox
from agentenv.records.messages import ToolResult
from agentenv.toolkit import Toolbox
from agentenv.toolkit.mcp import Description, McpServer, mcp_stdio, mcp_tools
from agentenv.toolkit.mcp.connecting import describe
from agentenv.toolkit.mcp.servers import StdioAddress

from tests.toolkit.kit import InMemoryBlobs, calls_of, make_context

PLAIN = Path(__file__).with_name("servers") / "plain.py"
COMMAND = ("python3", "server.py")
PATIENCE_S = 60.0


async def plain_server(sandbox: Sandbox, *modes: str, timeout_s: float = 60.0, name: str = "plain") -> McpServer:
    """Put the server into the sandbox and describe it; ``modes`` are its arguments."""
    await sandbox.write("server.py", PLAIN.read_bytes())
    described = await described_as(sandbox, *modes)
    return mcp_stdio(name, command=(*COMMAND, *modes), described=described, timeout_s=timeout_s)


async def described_as(sandbox: Sandbox, *modes: str) -> Description:
    await sandbox.write("server.py", PLAIN.read_bytes())
    address = StdioAddress(command=(*COMMAND, *modes))
    return await describe("plain", address, sandbox, Deadline.after(PATIENCE_S, "describing"))


class Episode:
    """The tools of servers through one episode."""

    def __init__(self, servers: Sequence[McpServer], sandbox: Sandbox | None, cap: int) -> None:
        self.blobs = InMemoryBlobs()
        self.context = make_context(sandbox, cap=cap, blobs=self.blobs)
        self.tools = mcp_tools(*servers)
        self.toolbox = Toolbox(self.tools)

    async def turn(self, *calls: tuple[str, dict[str, object]], within_s: float = PATIENCE_S) -> tuple[ToolResult, ...]:
        deadline = Deadline.after(within_s, "the tools of one action")
        return await self.toolbox.run(calls_of(*calls), context=self.context, deadline=deadline, refuse_after=None)

    async def call(self, name: str, **arguments: object) -> ToolResult:
        (result,) = await self.turn((name, arguments))
        return result


@asynccontextmanager
async def episode(*servers: McpServer, sandbox: Sandbox | None = None, cap: int = 4_000) -> AsyncGenerator[Episode]:
    """Open tools as the environment does."""
    made = Episode(servers, sandbox, cap)
    async with made.context.resources:
        await made.toolbox.open(made.context, Deadline.after(PATIENCE_S, "opening"))
        yield made
