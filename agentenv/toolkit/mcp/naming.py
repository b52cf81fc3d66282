"""Names of a server's tools that every model API takes, and that no two tools share."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

_LONGEST = 64
_DIGEST_CHARS = 6


def shown_name(name: str) -> str:
    """Give the nearest name of 1 to 64 letters, digits, ``_`` and ``-``; one of that form is its own.

    Source: the function name rule of the OpenAI and Mistral APIs. MCP allows dots, slashes and 128 characters.

    >>> shown_name("read_file"), shown_name("fs.read/file"), len(shown_name("x" * 100))
    ('read_file', 'fs_read_file', 64)
    """
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name) or "_"
    return plain if len(plain) <= _LONGEST else told_apart(plain, name)


def told_apart(shown: str, name: str) -> str:
    """Give a name of its own to a tool whose shown name is another's, or too long: with a digest of its real one.

    >>> told_apart("a_b", "a.b")
    'a_b_2e7336'
    """
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{shown[: _LONGEST - _DIGEST_CHARS - 1]}_{digest}"


def shown_names(names: Iterable[str], *, prefix: str, taken: Iterable[str]) -> dict[str, str]:
    """Map a server's tool names to shown ones, each unique.

    A name that is taken gets the server's in front (``time__convert``); two names of one server that look the same
    once they are plain get a digest each, so that the result does not depend on their order.

    Args:
        names: The server's, distinct.
        prefix: The server's name.
        taken: Shown names of others.

    Returns:
        Real name to shown name, in the order given.
    """
    names, used = list(names), set(taken)
    plain = {name: shown_name(name) for name in names}
    counts = [*plain.values()]
    shown: dict[str, str] = {}
    for name in names:
        chosen = plain[name]
        if counts.count(chosen) > 1 and chosen != name:
            chosen = told_apart(chosen, name)
        if chosen in used:
            chosen = shown_name(f"{prefix}__{chosen}")
        if chosen in used:
            chosen = told_apart(chosen, f"{prefix}\0{name}")
        used.add(chosen)
        shown[name] = chosen
    return shown
