"""The contract of a tool."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from agentenv.core.blobs import BlobSink
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Sandbox
from agentenv.records.axes import CallStatus
from agentenv.records.messages import Spill, TaskEnd, ToolSpec


@dataclass(slots=True, kw_only=True)
class ToolContext:
    """What one episode's tools share. Made by the environment at reset, closed by it at the end."""

    sandbox: Sandbox | None
    """None where the task needs no sandbox; a tool that needs one raises ``ToolFault``."""
    blobs: BlobSink
    """Where output beyond the cap goes, by content hash."""
    output_cap_bytes: int
    """Most bytes of text a result may show the policy."""
    resources: AsyncExitStack
    """A tool that keeps something open (an interpreter) enters it here."""
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    """Per-episode state of tools, keyed by tool name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a tool returns."""

    text: str
    """For the policy. May be long: the toolbox cuts it to the cap and spills the whole."""
    status: CallStatus = CallStatus.OK
    exit_code: int | None = None
    bytes_dropped: int = 0
    """Bytes the tool itself already left out of ``text`` (kept in ``full_output``, or beyond the sandbox's cap)."""
    full_output: Spill | None = None
    value: Any = None
    """JSON-compatible data for the grader."""
    ends: TaskEnd | None = None


class Tool(Protocol):
    """Something the policy can call. Stateless: what lives through an episode is in the context."""

    @property
    def spec(self) -> ToolSpec:
        """Name, description and JSON Schema shown to the policy."""
        ...

    @property
    def needs_sandbox(self) -> bool:
        """Whether `call` uses ``context.sandbox``."""
        ...

    @property
    def parallel(self) -> bool:
        """Whether calls of one turn may run at once; they keep their order in the record."""
        ...

    @property
    def sha256(self) -> str:
        """Hash of spec and source, for the manifest."""
        ...

    async def call(self, arguments: dict[str, Any], context: ToolContext, deadline: Deadline) -> Result:
        """Run one call with validated arguments.

        Args:
            arguments: Already checked and converted against the spec.
            context: The episode's.
            deadline: When the harness stops waiting. A tool with a shorter time limit of its own returns a result
                with status ``timeout``.

        Raises:
            InvalidArguments: The arguments are wrong in a way the schema does not say; becomes an observation.
            ToolFault: The tool could not be run; ends the episode.
            SandboxFault: Passed through.
            DeadlineReached: Passed through.

        Any other exception is the tool's own bug: a ``ToolFault`` with the tool's name.
        """
        ...


@runtime_checkable
class ServedTool(Tool, Protocol):
    """A tool that a server of its own stands behind, started before the policy acts."""

    @property
    def server(self) -> dict[str, str]:
        """Which server, for the manifest: ``name``, ``sha256`` and ``tool`` (what the server calls it) among it."""
        ...

    async def open(self, context: ToolContext, deadline: Deadline) -> None:
        """Start or reach the server; tools of one server may share what is kept in the context.

        Raises:
            ToolFault: It cannot be reached, or is not what was described; ends the episode.
            SandboxFault, DeadlineReached: Passed through.
        """
        ...


class InvalidArguments(Exception):
    """The policy called the tool with arguments that cannot be used; the text is shown to it."""


ToolFunction = Callable[..., Any]
