"""Shares and means that keep both denominators: what was scored, and all there is (law 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass

_Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


def wilson_interval(successes: int, n: int) -> tuple[float, float] | None:
    """Give the 95 % score interval of a share; None if ``n`` is 0.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).
    """
    if n == 0:
        return None
    share, square = successes / n, _Z95 * _Z95
    centre = share + square / (2 * n)
    spread = _Z95 * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    scale = 1 + square / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessRate:
    """How many episodes succeeded, of those scored and of all."""

    scored_successes: int
    """Successes among the scored."""
    successes: int
    """Successes among all: what the task itself calls a success, scored or not."""
    n_scored: int
    n_all: int

    @property
    def left_out(self) -> int:
        """Episodes that were not scored."""
        return self.n_all - self.n_scored

    @property
    def of_scored(self) -> float | None:
        """Share among the scored; None if none was."""
        return self.scored_successes / self.n_scored if self.n_scored else None

    @property
    def of_all(self) -> float | None:
        """Share among all; None if there are none. An episode nobody scored counts as no known success."""
        return self.successes / self.n_all if self.n_all else None

    @property
    def interval_of_scored(self) -> tuple[float, float] | None:
        """95 % Wilson interval of `of_scored`."""
        return wilson_interval(self.scored_successes, self.n_scored)

    @property
    def interval_of_all(self) -> tuple[float, float] | None:
        """95 % Wilson interval of `of_all`."""
        return wilson_interval(self.successes, self.n_all)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanReward:
    """What episodes were worth, over those with a reward and spread over all."""

    total: float
    n_scored: int
    """Episodes with a reward."""
    n_all: int

    @property
    def left_out(self) -> int:
        """Episodes without a reward."""
        return self.n_all - self.n_scored

    @property
    def of_scored(self) -> float | None:
        """Mean of the rewards there are; None if there are none."""
        return self.total / self.n_scored if self.n_scored else None

    @property
    def per_episode(self) -> float | None:
        """The same sum divided by all episodes: what the run gave for each episode it made. No mean of rewards."""
        return self.total / self.n_all if self.n_scored else None
