"""Paths as options take them."""

from __future__ import annotations

from pathlib import Path

import typer


def given_path(text: str) -> Path:
    """Read a path; an empty one, as of a variable that is not set, would mean the folder one happens to be in.

    Raises:
        BadParameter: It is empty.
    """
    if not text:
        raise typer.BadParameter("it is empty; give a path, or leave the option out")
    return Path(text)
