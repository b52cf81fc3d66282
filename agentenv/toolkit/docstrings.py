"""Reads Google-style docstrings: the description of a function and the text of each of its arguments.

Source of the format: the Google Python Style Guide, section 3.8.3.
"""

from __future__ import annotations

import inspect
import re
from itertools import pairwise
from typing import NamedTuple

_SECTION = re.compile(
    r"^(Args|Arguments|Returns?|Yields?|Raises|Attributes|Examples?|Notes?|See Also|Source|Invariant|Warnings?):(.*)$"
)
_ARGUMENT = re.compile(r"^\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?:\s*(?P<text>.*)$")


class Documentation(NamedTuple):
    """What a docstring says."""

    description: str
    """Everything before the first section, lines of a paragraph joined."""
    arguments: dict[str, str]
    """Argument name to its text, on one line."""


def parse(docstring: str | None) -> Documentation:
    """Take a docstring apart; an absent one is an empty description."""
    if not docstring:
        return Documentation("", {})
    lines = inspect.cleandoc(docstring).splitlines()
    starts = [n for n, line in enumerate(lines) if _SECTION.match(line)]
    description = _paragraphs(lines[: starts[0]] if starts else lines)
    arguments: dict[str, str] = {}
    for start, end in pairwise([*starts, len(lines)]):
        if lines[start].startswith("Arg"):
            arguments.update(_arguments(lines[start + 1 : end]))
    return Documentation(description, arguments)


def _paragraphs(lines: list[str]) -> str:
    """Join the lines of each paragraph; indented blocks (lists, examples) keep their line breaks."""
    text = "\n".join(lines).strip()
    return re.sub(r"(?<!\n)\n(?![\n\s\-*])", " ", text)


def _arguments(lines: list[str]) -> dict[str, str]:
    """Read an ``Args`` section: entries at one indentation, their continuation lines deeper."""
    found: dict[str, str] = {}
    name = None
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    for line in lines:
        body = line[indent:]
        match = _ARGUMENT.match(body)
        if match is not None:
            name = match["name"]
            found[name] = match["text"].strip()
        elif name is not None and body.strip():
            found[name] = f"{found[name]} {body.strip()}".strip()
    return found
