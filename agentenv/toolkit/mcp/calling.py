"""One call to a server, and what its failures mean. Needs the SDK."""

from __future__ import annotations

from typing import Any

import mcp_types
from mcp import MCPError

from agentenv.core.blobs import BlobSink
from agentenv.core.tool import InvalidArguments, Result
from agentenv.toolkit.explain import expected, got
from agentenv.toolkit.mcp.content import broken, result_of, size_of
from agentenv.toolkit.mcp.description import DescribedTool
from agentenv.toolkit.mcp.session import Session, Unreachable
from agentenv.toolkit.off_loop import off_loop
from agentenv.toolkit.schema_check import mismatch_of

_LONGEST = 2_000
"""Characters of a server's error message that are shown."""


async def carried(session: Session, tool: DescribedTool, arguments: dict[str, Any], blobs: BlobSink) -> Result | str:
    """Call a tool of the server, and hold what it returns to the form that the server described.

    Returns:
        What the tool returned, an error that it reports among it; or why the server could not carry out the call.

    Raises:
        InvalidArguments: The server says that they are.
        SandboxFault, HarnessFault: Passed through.
    """
    try:
        answer = await session.call(tool.name, arguments)
    except Unreachable as error:
        return str(error)
    except MCPError as error:
        if error.code == mcp_types.INVALID_PARAMS:
            raise InvalidArguments(f'Invalid arguments for "{tool.name}": {error.message[:_LONGEST]}') from error
        return f"it answered with error {error.code} of the protocol: {error.message[:_LONGEST]}"
    result = await off_loop(size_of(answer), result_of, answer, blobs)
    if answer.is_error or tool.output is None:
        return result
    fault = await _fault_of(answer, tool.output)
    return broken(result, fault) if fault else result


async def _fault_of(answer: mcp_types.CallToolResult, schema: dict[str, Any]) -> str:
    """Say in which way structured content is not what was described; empty if it is.

    Source: the protocol's revision 2025-11-25, server/tools, "Output Schema": servers must provide it where there is a
    schema, and clients should check it.
    """
    if "structured_content" not in answer.model_fields_set:
        return "there is no structured content"
    wrong = await mismatch_of(answer.structured_content, schema)
    if wrong is None:
        return ""
    place = f"at {wrong.where.removeprefix('.')}: " if wrong.where else ""
    return f"{place}expected {expected(wrong.schema)}, got {got(wrong.value)}"
