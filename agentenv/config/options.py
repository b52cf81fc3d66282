"""How an error names the setting at fault: as it is called in Python and on the command line."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from agentenv.errors import UsageError

_SPELLED = {
    "budgets": "budget",
    "context_window": "context",
    "mcp_programs": "mcp-program",
    "output_cap_bytes": "output-cap",
    "tool_timeout_s": "tool-timeout",
    "reply_timeout_s": "reply-timeout",
}
"""Options that are not spelled as their setting."""


def option(name: str) -> str:
    """Name a setting for whoever gave it, in Python or on the command line.

    >>> option("context_window"), option("group_size")
    ('context_window (--context)', 'group_size (--group-size)')
    """
    return f"{name} (--{_SPELLED.get(name, name.replace('_', '-'))})"


@contextmanager
def blaming(given_as: str, value: object = "") -> Generator[None]:
    """Put the option and its value in front of what is wrong with it.

    Args:
        given_as: The option.
        value: As it was given; empty where it must not be repeated, or the error does so itself.

    Raises:
        UsageError: Of the class it was raised as.
    """
    try:
        yield
    except UsageError as error:
        own = str(error)
        said = own.removeprefix(f"{value} ")  # many begin with the value: it need not stand there twice
        raise type(error)(f"{f'{given_as} {value}'.rstrip()}{': ' if said == own else ' '}{said}") from error
