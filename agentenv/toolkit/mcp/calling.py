"""One call to a server, and what its failures mean. Needs the SDK."""

from __future__ import annotations

from typing import Any

import mcp_types
from mcp import MCPError

from agentenv.core.blobs import BlobSink
from agentenv.core.tool import InvalidArguments, Result
from agentenv.toolkit.mcp.content import result_of
from agentenv.toolkit.mcp.session import Session, Unreachable

_LONGEST = 2_000
"""Characters of a server's error message that are shown."""


async def carried(session: Session, tool: str, arguments: dict[str, Any], blobs: BlobSink) -> Result | str:
    """Call a tool of the server.

    Returns:
        What the tool returned, an error that it reports among it; or why the server could not carry out the call.

    Raises:
        InvalidArguments: The server says that they are.
        SandboxFault, HarnessFault: Passed through.
    """
    try:
        answer = await session.call(tool, arguments)
    except Unreachable as error:
        return str(error)
    except MCPError as error:
        if error.code == mcp_types.INVALID_PARAMS:
            raise InvalidArguments(f'Invalid arguments for "{tool}": {error.message[:_LONGEST]}') from error
        return f"it answered with error {error.code} of the protocol: {error.message[:_LONGEST]}"
    return result_of(answer, blobs)
