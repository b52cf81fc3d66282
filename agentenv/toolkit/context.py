"""What a tool asks of its context."""

from __future__ import annotations

from agentenv.core.sandbox import Sandbox
from agentenv.core.tool import ToolContext
from agentenv.errors import ToolFault


def sandbox_of(context: ToolContext, tool: str = "a tool") -> Sandbox:
    """Give the episode's sandbox to the tool of this name.

    Raises:
        ToolFault: There is none; starting the episode anew cannot help.
    """
    if context.sandbox is None:
        raise ToolFault.permanent(
            f"{tool} needs a sandbox and the task has none: set needs_sandbox=True on the task, or give it files"
        )
    return context.sandbox
