"""Our own toolboxes, served over MCP: stdio, or streamable HTTP on the loopback interface. Needs the SDK."""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.metadata import version
from typing import Any, cast

import anyio
import mcp_types
import uvicorn
from mcp import MCPError
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.lifetime import finish
from agentenv.core.tool import ToolContext
from agentenv.errors import Fault, UsageError
from agentenv.records.axes import CallStatus
from agentenv.records.messages import ToolCall, ToolResult
from agentenv.toolkit.mcp.lines import MOST_MESSAGE_BYTES
from agentenv.toolkit.toolbox import Toolbox

LOOPBACK = "127.0.0.1"
_ENDING_S = 5.0


class _Uvicorn(uvicorn.Server):
    """Leaves signals to whoever runs the loop."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class ToolboxServer:
    """One toolbox with one context behind an MCP server: what tools keep is shared by all that are connected."""

    def __init__(self, toolbox: Toolbox, context: ToolContext, *, timeout_s: float) -> None:
        """Make it; nothing is started.

        Args:
            toolbox: What is served.
            context: With a sandbox if a tool needs one; closed by the caller.
            timeout_s: Longest that one call may take.
        """
        self._toolbox = toolbox
        self._context = context
        self._timeout_s = timeout_s
        self._numbers = itertools.count()
        self._parallel = {tool.spec.name for tool in toolbox.tools if tool.parallel}
        self._in_turn = asyncio.Lock()
        self._server: Server[dict[str, Any]] = Server(
            "agentenv", version=version("agentenv"), on_list_tools=self._list, on_call_tool=self._call
        )

    async def serve_stdio(self) -> None:
        """Serve whoever started this process, until its stdin ends.

        Raises:
            UsageError: Stdin is no pipe.
        """
        stdin = cast("anyio.AsyncFile[str]", await _lines_of_stdin())
        async with stdio_server(stdin=stdin) as (received, to_send):
            await self._server.run(received, to_send, self._server.create_initialization_options())

    async def serve_http(self, port: int, ready: Callable[[str], None]) -> None:
        """Serve on the loopback interface until cancelled.

        Args:
            port: 0 takes a free one.
            ready: Is told the address once it is listened on.

        Raises:
            UsageError: The port is taken.
        """
        with _listening(port) as listener:
            app = self._server.streamable_http_app(host=LOOPBACK)
            config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
            server = _Uvicorn(config)
            serving = asyncio.ensure_future(server.serve(sockets=[listener]))
            try:
                ready(f"http://{LOOPBACK}:{listener.getsockname()[1]}/mcp")
                await asyncio.wait([serving])
            finally:
                server.should_exit = True
                await finish(asyncio.wait([serving]), _ENDING_S)

    async def _list(
        self, _context: ServerRequestContext[dict[str, Any]], _params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(
            tools=[
                mcp_types.Tool(name=spec.name, description=spec.description, input_schema=spec.parameters)
                for spec in self._toolbox.specs
            ]
        )

    async def _call(
        self, _context: ServerRequestContext[dict[str, Any]], params: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult:
        call = ToolCall(id=f"served{next(self._numbers)}", name=params.name, arguments=params.arguments or {})
        if call.name in self._parallel:
            return await self._run(call)
        async with self._in_turn:
            return await self._run(call)

    async def _run(self, call: ToolCall) -> mcp_types.CallToolResult:
        deadline = Deadline.after(self._timeout_s, f"tool {call.name!r}")
        try:
            (result,) = await self._toolbox.run([call], context=self._context, deadline=deadline, refuse_after=None)
        except DeadlineReached:
            text = f"The call was stopped after {self._timeout_s:g} s."
            result = ToolResult(call_id=call.id, name=call.name, status=CallStatus.TIMEOUT, text=text)
        except Fault as fault:
            raise MCPError(mcp_types.INTERNAL_ERROR, f"{fault.domain}: {fault}") from fault
        if result.status is CallStatus.UNKNOWN_TOOL:
            raise MCPError(mcp_types.INVALID_PARAMS, result.text)
        return _answer(result)


def _answer(result: ToolResult) -> mcp_types.CallToolResult:
    """Give what a client is shown; what our results say beyond that is in ``_meta``."""
    meta: dict[str, Any] = {
        "agentenv/status": result.status.value,
        "agentenv/exit_code": result.exit_code,
        "agentenv/bytes_dropped": result.bytes_dropped,
        "agentenv/duration_s": result.duration_s,
    }
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(text=result.text)],
        is_error=result.status is not CallStatus.OK,
        _meta=meta,
    )


@asynccontextmanager
async def opened(toolbox: Toolbox, context: ToolContext, *, timeout_s: float) -> AsyncGenerator[ToolboxServer]:
    """Open the toolbox, and close what its tools hold at the end.

    Raises:
        Fault: A tool's own server cannot be reached.
    """
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(context.resources)
        await toolbox.open(context, Deadline.after(timeout_s, "the start of the tools"))
        yield ToolboxServer(toolbox, context, timeout_s=timeout_s)


def _listening(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError as error:
        listener.close()
        raise UsageError(
            f"Port {port} of {LOOPBACK} cannot be listened on: {error.strerror}; 0 takes a free one."
        ) from error
    return listener


async def _lines_of_stdin() -> AsyncIterator[str]:
    """Read stdin without a thread, which could not be stopped while it waits."""
    reader = asyncio.StreamReader(limit=MOST_MESSAGE_BYTES)
    try:
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    except ValueError as error:
        raise UsageError("MCP over stdio needs a pipe as stdin, as a client makes one; or give --http PORT.") from error

    async def lines() -> AsyncIterator[str]:
        async for line in reader:
            yield line.decode("utf-8", "replace")

    return lines()
