"""``notes``: a memory of the policy's own, which no compaction touches.

It is kept beside the workspace, in the harness: grading, snapshots and rules about files do not see it, and a task
without a sandbox can have it. It lives as long as the episode, and begins empty. The record has it in the calls, and
after each of them its hash.
"""

from __future__ import annotations

import hashlib
from typing import Literal

from agentenv.core.tool import InvalidArguments, Result, ToolContext
from agentenv.errors import ConfigError
from agentenv.records.axes import CallStatus
from agentenv.toolkit import FunctionTool, tool

from agentenv_tools.arguments import text_argument

DEFAULT_CAP_BYTES = 8_192


def notes_tool(*, cap_bytes: int = DEFAULT_CAP_BYTES) -> FunctionTool:
    """Make the tool for a task's ``tools``.

    Args:
        cap_bytes: Most bytes of notes. One that is larger than a tool result may show (``output_cap_bytes``) cannot be
            read back whole.

    Raises:
        ConfigError: There is no room for anything.
    """
    if cap_bytes < 1:
        raise ConfigError(f"notes need room for 1 byte or more, got cap_bytes={cap_bytes}")

    def notes(action: Literal["append", "read", "replace"], context: ToolContext, note: str = "") -> Result:
        kept: str = context.state.get("notes", "")
        if action == "read":
            if note:
                raise InvalidArguments('argument "note" is not for reading: leave it out, or use append or replace')
            return _result(kept or "[there are no notes]", kept)
        note = text_argument("note", note)
        if action == "append" and not note:
            raise InvalidArguments('argument "note" is missing: give what to add')
        after = note if action == "replace" else _joined(kept, note)
        size = len(after.encode())
        if size > cap_bytes:
            problem = f"Error: the notes would take {size:,} bytes, {cap_bytes:,} are allowed; they stay as they were."
            advice = "Write a shorter one in place of all of it with replace."
            return Result(text=f"{problem} {advice}", status=CallStatus.ERROR, value=_value(kept))
        context.state["notes"] = after
        return _result(f"Kept: the notes take {size:,} of {cap_bytes:,} bytes.", after)

    notes.__doc__ = f"""Keep notes that are still there when older parts of the conversation are not.

    They can be read in every later turn, and hold up to {cap_bytes:,} bytes.

    Args:
        action: append (add the note at the end), read (show all), replace (put the note in place of all).
        note: What to add, or to put in place; leave it out to read.
        context: The episode's; filled in, not shown.
    """
    return tool(example={"action": "append", "note": "The tests are in tests/unit."})(notes)


def _joined(kept: str, note: str) -> str:
    """Put a note behind what is there, on a line of its own."""
    return f"{kept}{'' if not kept or kept.endswith(chr(10)) else chr(10)}{note}"


def _result(text: str, kept: str) -> Result:
    return Result(text=text, value=_value(kept))


def _value(kept: str) -> dict[str, str | int]:
    data = kept.encode()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


notes = notes_tool()
"""With room for 8 KiB."""
