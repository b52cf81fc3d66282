"""Results that several tools give."""

from __future__ import annotations

from agentenv.core.tool import Result
from agentenv.records.axes import CallStatus
from agentenv.toolkit.output import visible

_PATH_CHARS = 300
"""Of a path that are repeated to whoever gave it."""


def refused(text: str) -> Result:
    """Report to the policy why its call did nothing."""
    return Result(text=f"Error: {text}.", status=CallStatus.ERROR)


def unusable(path: str, error: OSError) -> Result:
    """Report to the policy why a path of the workspace cannot be used."""
    if not path:
        return refused('the path is empty: give one within the workspace, such as "notes.txt", or "." for all of it')
    shown = visible(path if len(path) <= _PATH_CHARS else f"{path[:_PATH_CHARS]}...")
    match error:
        case FileNotFoundError():
            return refused(f'there is no file or folder "{shown}"')
        case IsADirectoryError():
            return refused(f'"{shown}" is a folder, not a file')
        case NotADirectoryError():
            return refused(f'"{shown}" is not a folder')
        case PermissionError():
            return refused(f'"{shown}" is not allowed: give a path within the workspace, relative to it')
        case _:
            return refused(f'"{shown}" cannot be used: {error.strerror or error}')
