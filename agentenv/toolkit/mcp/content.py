"""What a server answered, made a result: text as it is, all else described and kept by its hash. Needs the SDK."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import replace
from typing import Any

import mcp_types

from agentenv.core.blobs import BlobSink
from agentenv.core.tool import Result
from agentenv.records.axes import CallStatus
from agentenv.toolkit.output import json_value

_MOST_VALUE_CHARS = 64 << 10
"""Of structured content as JSON that goes to the grader; more is in the text, and kept whole with it."""


def result_of(answer: mcp_types.CallToolResult, blobs: BlobSink) -> Result:
    """Make the result of a call.

    Structured content is shown where no text stands for it, and handed to the grader as ``value``.

    Raises:
        HarnessFault: A blob could not be stored.
    """
    parts = [_shown(block, blobs) for block in answer.content]
    structured = answer.structured_content
    written = "" if structured is None else json.dumps(structured, ensure_ascii=False)
    if structured is not None and not any(isinstance(block, mcp_types.TextContent) for block in answer.content):
        parts.append(written)
    return Result(
        text="\n".join(parts) or "[no output]",
        status=CallStatus.ERROR if answer.is_error else CallStatus.OK,
        value=_value(structured, written),
    )


def size_of(answer: mcp_types.CallToolResult) -> int:
    """Say how much of it is to go through: characters of text; what has to be decoded or written as JSON is a lot."""
    if answer.structured_content is not None:
        return _MOST_VALUE_CHARS
    return sum(
        len(block.text) if isinstance(block, mcp_types.TextContent) else _MOST_VALUE_CHARS for block in answer.content
    )


def broken(result: Result, fault: str) -> Result:
    """Make an error of a result that is not what its server described: said first, then shown as it came.

    It has no ``value``: whoever reads that relies on its form.
    """
    said = f"Error: the server broke its own promise about this tool's result: {fault}. What it sent:"
    return replace(result, text=f"{said}\n{result.text}", status=CallStatus.ERROR, value=None)


def _value(structured: Any, written: str) -> Any:
    if structured is None or len(written) > _MOST_VALUE_CHARS:
        return None
    try:
        return json_value(structured)
    except TypeError:  # nested too deep for our readers; the text has it
        return None


def _shown(block: mcp_types.ContentBlock, blobs: BlobSink) -> str:
    match block:
        case mcp_types.TextContent():
            return block.text
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            return f"[{block.type}, {block.mime_type}, {_kept(block.data, blobs)}]"
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as resource):
            return f"[resource {resource.uri}{_kind(resource.mime_type)}]\n{resource.text}"
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as resource):
            return f"[resource {resource.uri}{_kind(resource.mime_type)}, {_kept(resource.blob, blobs)}]"
        case mcp_types.ResourceLink():
            size = "" if block.size is None else f", {block.size:,} bytes"
            return f"[link to resource {block.uri}{_kind(block.mime_type)}{size}; not read]"
        case _:
            return "[content of a kind that is not known here]"


def _kept(data: str, blobs: BlobSink) -> str:
    """Store what is no text; say how much it is and under which hash it is kept."""
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"{len(data):,} characters that are no base64, left out"
    spill = blobs.put(content)
    return f"{spill.size_bytes:,} bytes, kept on record as {spill.sha256}"


def _kind(mime_type: str | None) -> str:
    return f", {mime_type}" if mime_type else ""
