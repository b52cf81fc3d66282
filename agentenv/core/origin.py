"""Where in a user's own code an exception came from, for the text of a fault."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_OURS = f"{Path(__file__).parents[1]}/"
_LONGEST = 200
"""Characters of an exception's own text that are kept."""
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def raised(error: BaseException) -> str:
    """Say what was raised, and in which line of whose file.

    The line is that of the innermost frame of code that belongs neither to this package nor to an installed one; only
    the file's name is given, so that records of different machines agree.

    >>> raised(ValueError("no"))
    'raised ValueError: no'
    """
    text = str(error)[:_LONGEST]
    said = f"raised {type(error).__name__}" + (f": {text}" if text else "")
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        path = frame.f_code.co_filename
        if not path.startswith((_OURS, *_INSTALLED, "<")):
            return f"{said} ({Path(path).name}:{line})"
    return said
