"""Connects to a server and holds it to its description; describes one that has none yet."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.sandbox import Sandbox
from agentenv.errors import ConfigError
from agentenv.toolkit.mcp.description import Description, check_tools
from agentenv.toolkit.mcp.servers import Address, McpServer

if TYPE_CHECKING:
    from agentenv.toolkit.mcp.session import Session

OPENING_S = 60.0
"""For a server to start and to say what it offers."""


class Unusable(Exception):
    """No connection as it should be; the text says why."""

    def __init__(self, text: str, *, permanent: bool = False) -> None:
        super().__init__(text)
        self.permanent = permanent
        """Whether trying again cannot help."""


async def connected(server: McpServer, sandbox: Sandbox | None, deadline: Deadline) -> Session:
    """Connect to a server, for the caller to close.

    Raises:
        Unusable: It cannot be reached, or is not what was described.
        SandboxFault, DeadlineReached: Passed through.
    """
    session, found = await _opened(server.name, server.address, sandbox, deadline)
    if difference := server.described.difference(found):
        await session.aclose()
        raise Unusable(
            f"{difference}; describe it anew (agentenv describe-mcp), or run what was described", permanent=True
        )
    return session


async def describe(name: str, address: Address, sandbox: Sandbox | None, deadline: Deadline) -> Description:
    """Ask a server what it offers.

    Args:
        name: What to call it.
        address: How it is reached.
        sandbox: Where one over stdio is started; it is gone again afterwards.
        deadline: When to stop waiting.

    Raises:
        ConfigError: It cannot be reached, or offers what no policy could be given.
        SandboxFault, DeadlineReached: Passed through.
    """
    try:
        session, found = await _opened(name, address, sandbox, deadline)
    except Unusable as unusable:
        raise ConfigError(f"MCP server {name!r}: {unusable}") from unusable
    await session.aclose()
    check_tools(found.tools, repr(name))
    return found


async def _opened(
    name: str, address: Address, sandbox: Sandbox | None, deadline: Deadline
) -> tuple[Session, Description]:
    await _load_sdk()
    from agentenv.toolkit.mcp.session import Session, Unreachable

    session = Session(name, address, sandbox)
    own = deadline.sooner(OPENING_S, f"the start of MCP server {name!r}")
    try:
        async with own.enforce():
            await session.open(own)
            return session, await session.describe()
    except BaseException as error:
        await session.aclose()
        if isinstance(error, Unreachable):
            raise Unusable(str(error)) from error
        if isinstance(error, DeadlineReached) and error.deadline is own and own is not deadline:
            told = session.told()
            raise Unusable(f"it did not start within {OPENING_S:g} s" + (f"\n{told}" if told else "")) from error
        raise


async def _load_sdk() -> None:
    """Import the SDK, which takes a second, without holding up other episodes.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        await asyncio.to_thread(importlib.import_module, "agentenv.toolkit.mcp.calling")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"MCP servers need the official SDK, and {error.name} is not installed: pip install 'mcp>=2.3'"
        ) from error
