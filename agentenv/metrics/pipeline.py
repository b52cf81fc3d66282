"""How long one step of training takes: its parts one after another, or the first three side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agentenv.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInterval:
    """Seconds from one weight update to the next."""

    serial_s: float
    """Everything one after another."""
    overlapped_s: float
    """Lower bound where sampling, scoring and training overlap; weight sync never does."""

    @property
    def ratio(self) -> float:
        """How many times faster overlapping can be at most."""
        return self.serial_s / self.overlapped_s


def step_interval(*, sample_s: float, score_s: float, train_s: float, sync_s: float) -> StepInterval:
    """Work out both intervals.

    Raises:
        UsageError: A duration is negative or not finite, or all are 0.

    >>> step_interval(sample_s=3, score_s=1, train_s=2, sync_s=1)
    StepInterval(serial_s=7, overlapped_s=4)
    """
    parts = {"sample_s": sample_s, "score_s": score_s, "train_s": train_s, "sync_s": sync_s}
    for name, value in parts.items():
        if not math.isfinite(value) or value < 0:
            raise UsageError(f"{name} must be a duration in seconds, got {value!r}.")
    serial = sum(parts.values())
    if not serial:
        raise UsageError("A step that takes no time has no interval.")
    return StepInterval(serial_s=serial, overlapped_s=max(sample_s, score_s, train_s) + sync_s)
