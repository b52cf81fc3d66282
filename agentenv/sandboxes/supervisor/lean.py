"""What is needed of modules that take long to import, without them.

``signal`` makes enumerations of numbers, and that, ``collections`` and ``contextlib`` import a good part of the
standard library: together a third of the time a supervisor takes to start. What is behind them takes none.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections import deque
    from contextlib import suppress
else:
    import _signal as signal
    from _collections import deque

    class suppress:  # noqa: N801 - stands in for the library's
        """``contextlib.suppress``."""

        __slots__ = ("_kinds",)

        def __init__(self, *kinds):
            self._kinds = kinds

        def __enter__(self):
            pass

        def __exit__(self, kind, error, trace):
            return kind is not None and issubclass(kind, self._kinds)


__all__ = ["deque", "signal", "suppress"]
