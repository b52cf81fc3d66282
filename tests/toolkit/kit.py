"""What tests of tools need: blobs in memory, a context, and calls."""

from __future__ import annotations

import hashlib
from contextlib import AsyncExitStack
from typing import Any

from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Sandbox
from agentenv.core.tool import Tool, ToolContext
from agentenv.errors import HarnessFault
from agentenv.records.messages import Spill, ToolCall, ToolResult
from agentenv.toolkit import Toolbox

NO_DEADLINE = Deadline("test")


class InMemoryBlobs:
    """A `BlobSink` that keeps blobs by their hash; ``fail`` makes writing fail as a full disk does."""

    def __init__(self, fail: bool = False) -> None:
        self.contents: dict[str, bytes] = {}
        self.fail = fail
        self.unfinished = 0
        """Writers neither committed nor discarded."""

    def open(self) -> InMemoryBlobWriter:
        self.unfinished += 1
        return InMemoryBlobWriter(self)

    def put(self, content: bytes) -> Spill:
        if self.fail:
            raise HarnessFault("no space left")
        spill = Spill(sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))
        self.contents[spill.sha256] = content
        return spill


class InMemoryBlobWriter:
    def __init__(self, blobs: InMemoryBlobs) -> None:
        self._blobs = blobs
        self._chunks: list[bytes] = []
        self._open = True

    def write(self, chunk: bytes) -> None:
        if self._blobs.fail:
            raise HarnessFault("no space left")
        self._chunks.append(chunk)

    def commit(self) -> Spill:
        spill = self._blobs.put(b"".join(self._chunks))
        self.discard()
        return spill

    def discard(self) -> None:
        self._blobs.unfinished -= self._open
        self._open = False


def make_context(sandbox: Sandbox | None = None, cap: int = 2_000, blobs: InMemoryBlobs | None = None) -> ToolContext:
    return ToolContext(
        sandbox=sandbox, blobs=blobs or InMemoryBlobs(), output_cap_bytes=cap, resources=AsyncExitStack()
    )


def calls_of(*calls: tuple[str, dict[str, Any]]) -> list[ToolCall]:
    return [ToolCall(id=f"c{n}", name=name, arguments=arguments) for n, (name, arguments) in enumerate(calls)]


async def call_one(tool: Tool, /, context: ToolContext | None = None, **arguments: Any) -> ToolResult:
    """Run one call as the environment does."""
    results = await Toolbox([tool]).run(
        calls_of((tool.spec.name, arguments)),
        context=context or make_context(),
        deadline=NO_DEADLINE,
        refuse_after=None,
    )
    return results[0]
