"""The tools of MCP servers as tools of an episode: one connection per server and episode, made anew where it died."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.lifetime import AsyncResource
from agentenv.core.sandbox import Sandbox
from agentenv.core.tool import InvalidArguments, Result, Tool, ToolContext
from agentenv.errors import ConfigError, ToolFault, ended
from agentenv.records.axes import CallStatus
from agentenv.records.messages import ToolSpec
from agentenv.toolkit import explain
from agentenv.toolkit.context import sandbox_of
from agentenv.toolkit.mcp.connecting import Unusable, connected
from agentenv.toolkit.mcp.description import DescribedTool
from agentenv.toolkit.mcp.naming import shown_names
from agentenv.toolkit.mcp.servers import HttpAddress, McpServer, StdioAddress

if TYPE_CHECKING:
    from agentenv.toolkit.mcp.session import Session

_AFRESH = "The next call starts it afresh: what it kept in memory is lost."


class McpTool:
    """One tool of one server; see `core.tool.Tool`."""

    def __init__(self, server: McpServer, described: DescribedTool, name: str) -> None:
        self.spec = ToolSpec(name=name, description=described.description, parameters=described.parameters)
        self.parallel = described.parallel
        """As the server's hints say. A server over stdio that is asked several things at once answers by id."""
        self.needs_sandbox = isinstance(server.address, StdioAddress)
        self.sha256 = hashlib.sha256(f"{server.sha256} {described.name} {name}".encode()).hexdigest()
        self._server = server
        self._described = described

    def __repr__(self) -> str:
        return f"McpTool({self.spec.name!r} of {self._server.name!r})"

    @property
    def server(self) -> dict[str, str]:
        """Which server it is of, and what it is called there, for the manifest."""
        described, address = self._server.described, self._server.address
        reached = address.url.partition("?")[0] if isinstance(address, HttpAddress) else " ".join(address.command)
        return {
            "name": self._server.name,
            "server": described.server,
            "version": described.version,
            "protocol": described.protocol,
            "reached": reached,
            "tools_sha256": described.sha256,
            "sha256": self._server.sha256,
            "tool": self._described.name,
        }

    async def open(self, context: ToolContext, deadline: Deadline) -> None:
        """Connect to the server, and see that it is what was described.

        Raises:
            ToolFault: It cannot be reached, or is another.
            SandboxFault, DeadlineReached: Passed through.
        """
        await self._seat(context).open(deadline)

    async def call(self, arguments: dict[str, Any], context: ToolContext, deadline: Deadline) -> Result:
        """Carry a call to the server; see `core.tool.Tool.call`."""
        _check_carried(arguments)
        seat = self._seat(context)
        limit = deadline.sooner(self._server.timeout_s, f"tool {self.spec.name!r}")
        try:
            async with limit.enforce():
                return await seat.call(self._described, arguments, context, deadline)
        except DeadlineReached as reached:
            if reached.deadline is not limit or limit is deadline:
                raise
            told = seat.told()
            text = f"The call was stopped after its limit of {self._server.timeout_s:g} s, and the server told so."
            return Result(text=f"{text}\n{told}" if told else text, status=CallStatus.TIMEOUT)

    def _seat(self, context: ToolContext) -> _Seat:
        key = f"mcp {self._server.name} {self._server.sha256}"
        seat = context.state.get(key)
        if seat is None:
            sandbox = sandbox_of(context, f"tool {self.spec.name!r}") if self.needs_sandbox else None
            seat = context.state[key] = _Seat(self._server, sandbox)
            context.resources.push_async_exit(seat)
        assert isinstance(seat, _Seat), "the key is of this module's own making"
        return seat


class _Seat(AsyncResource):
    """Where the connection to one server sits through an episode."""

    def __init__(self, server: McpServer, sandbox: Sandbox | None) -> None:
        self._server = server
        self._sandbox = sandbox
        self._session: Session | None = None
        self._changing = asyncio.Lock()
        self._said_changed = False

    async def open(self, deadline: Deadline) -> None:
        """Connect if nobody has yet.

        Raises:
            ToolFault: It cannot be reached, or is not what was described.
        """
        async with self._changing:
            if self._session is not None:
                return
            try:
                self._session = await connected(self._server, self._sandbox, deadline)
            except Unusable as unusable:
                fault = ToolFault(f"MCP server {self._server.name!r}: {ended(unusable)}")
                fault.retryable = not unusable.permanent
                raise fault from unusable

    async def call(
        self, tool: DescribedTool, arguments: dict[str, Any], context: ToolContext, deadline: Deadline
    ) -> Result:
        """Ask the server, in a connection made anew where the last one was lost."""
        from agentenv.toolkit.mcp.calling import carried  # the SDK is loaded once there is a connection

        await self.open(deadline)  # where an episode is not opened as a whole: worked examples
        async with self._changing:
            assert self._session is not None, "opened above"
            if self._session.lost:
                await self._session.aclose()
                try:
                    self._session = await connected(self._server, self._sandbox, deadline)
                except Unusable as unusable:  # it worked before: what happened to it is part of the episode
                    return self._unavailable(f"it could not be started again: {unusable}")
            session = self._session
        answer = await carried(session, tool, arguments, context.blobs)
        if isinstance(answer, str):
            return self._unavailable(answer, afresh=session.lost)
        return self._noting(answer, session)

    def told(self) -> str:
        """Say what the server wrote beside its messages."""
        return "" if self._session is None else self._session.told()

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.aclose()

    def _unavailable(self, why: str, *, afresh: bool = False) -> Result:
        text = f"The tool is unavailable: the server {self._server.name!r} could not carry out the call: {ended(why)}"
        return Result(text=f"{text}\n{_AFRESH}" if afresh else text, status=CallStatus.UNAVAILABLE)

    def _noting(self, result: Result, session: Session) -> Result:
        """Say once that the server has other tools now: those of an episode stay as they were described."""
        if not session.tools_changed or self._said_changed:
            return result
        self._said_changed = True
        note = (
            f"[the server {self._server.name!r} says that its tools have changed; those listed here stay as they are]"
        )
        return replace(result, text=f"{result.text}\n{note}")


def _check_carried(arguments: dict[str, Any]) -> None:
    """Refuse what no message can have in it.

    Raises:
        InvalidArguments: Names the argument.
    """
    for name, value in arguments.items():
        try:
            msgspec.json.encode({name: value})
        except (ValueError, OverflowError) as error:
            raise InvalidArguments(
                f'argument "{explain.clip(name)}" has what JSON cannot carry: a lone surrogate, which is not a '
                "character, or a huge number; write it anew"
            ) from error


def mcp_tools(*servers: McpServer, beside: Sequence[Tool] = ()) -> tuple[McpTool, ...]:
    """Give the tools of servers, for a task's ``tools``.

    A name that no model API takes is mapped to one that all do; a name that is taken gets its server's in front. The
    manifest has each tool's own name.

    Args:
        servers: Of different names.
        beside: Other tools of the task, whose names are taken.

    Raises:
        ConfigError: Two servers of one name.
    """
    _check_distinct(server.name for server in servers)
    taken = {tool.spec.name for tool in beside}
    tools: list[McpTool] = []
    for server in servers:
        shown = shown_names((tool.name for tool in server.tools), prefix=server.name, taken=taken)
        tools += [McpTool(server, tool, shown[tool.name]) for tool in server.tools]
        taken |= set(shown.values())
    return tuple(tools)


def _check_distinct(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError(f"Two MCP servers are called {name!r}; give each a name of its own")
        seen.add(name)
