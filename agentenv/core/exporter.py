"""The contract of exporters: records to rows, and a report of what the target cannot carry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agentenv.core.training import Untrained
from agentenv.records.episode import EpisodeRecord


@dataclass(slots=True, kw_only=True)
class LossReport:
    """What an export left behind, counted, so that loss can be tested."""

    rows: int = 0
    episodes: int = 0
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    """Reason to number of episodes, segments or fields that did not fit."""

    untrained: dict[Untrained, int] = field(default_factory=dict[Untrained, int])
    """Sampled tokens in rows that are not trained, by reason; the rows carry them all the same."""

    def drop(self, reason: str, n: int = 1) -> None:
        """Count something that was left out."""
        self.dropped[reason] = self.dropped.get(reason, 0) + n


class Exporter(Protocol):
    """Turns episode records into rows of one format.

    Laws 5 and 10: no null becomes 0; a sampled token is trained in one row only; the row weights of one episode sum
    to 1 (or there is no row for it, and the report says so).
    """

    @property
    def name(self) -> str:
        """What ``export --to`` calls it."""
        ...

    def rows(self, episodes: Iterable[EpisodeRecord], report: LossReport) -> Iterator[dict[str, Any]]:
        """Give the rows, filling the report."""
        ...

    def write(self, episodes: Iterable[EpisodeRecord], path: Path) -> LossReport:
        """Write a file atomically.

        Raises:
            ConfigError: An optional dependency is missing; says how to install it.
        """
        ...
