"""How often Python looks for reference cycles while a run collects."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

_YOUNG_OBJECTS = 50_000
"""New containers until a search; Python's own default is 700."""


@contextmanager
def rare_cycle_searches() -> Generator[None]:
    """Let Python look for reference cycles less often within the body, in the whole process.

    Episodes in flight hold many small objects and make next to no cycles: with the default, searches take 4 to 10 % of
    a collection's CPU time and find nothing. What cycles there are is still found, a few megabytes later. A threshold
    that somebody else has raised further, or has switched off, is left alone.
    """
    before = gc.get_threshold()
    if 0 < before[0] < _YOUNG_OBJECTS:
        gc.set_threshold(_YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
