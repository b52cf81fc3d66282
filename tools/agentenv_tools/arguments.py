"""Checks that several tools need and that a schema does not say."""

from __future__ import annotations

from agentenv.core.deadline import Deadline
from agentenv.core.tool import InvalidArguments

MAX_TIMEOUT_S = 300.0
DEFAULT_TIMEOUT_S = 30.0
_LEAST_S = 0.1
_ROOM_S = 3.0
"""Seconds before the harness's own deadline at which a command is stopped, so that its output can still be shown."""


def text_argument(name: str, text: str) -> str:
    """Give a text that a process or a file name can carry.

    Raises:
        InvalidArguments: It has a NUL byte or a lone surrogate.
    """
    if "\0" in text:
        raise InvalidArguments(f'argument "{name}" contains a NUL character, which no command, program or path can')
    if not _encodable(text):
        raise InvalidArguments(f'argument "{name}" contains a lone surrogate, which is not a character: write it anew')
    return text


def within(timeout_s: float, deadline: Deadline) -> float:
    """Give the seconds a command may take: what was asked for, or less where the harness stops waiting earlier."""
    return min(timeout_s, max(_LEAST_S, deadline.remaining_s - _ROOM_S))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
