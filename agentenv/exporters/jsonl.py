"""JSON lines: one row for each training sequence, numbers exact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentenv.core.exporter import LossReport
from agentenv.exporters.files import written_atomically
from agentenv.exporters.rows import rows_of
from agentenv.records.episode import EpisodeRecord


class JsonlExporter:
    """One JSON object a line, one line for each training sequence; float32 survives exactly.

    A log-prob is written as the shortest decimal of its double, which rounds to the same float32.
    """

    name = "jsonl"

    def __init__(self, *, run_id: str | None = None) -> None:
        self._run_id = run_id

    def rows(self, episodes: Iterable[EpisodeRecord], report: LossReport) -> Iterator[dict[str, Any]]:
        """Give the rows, filling the report."""
        return rows_of(episodes, report, run_id=self._run_id)

    def write(self, episodes: Iterable[EpisodeRecord], path: Path) -> LossReport:
        """Write a file atomically.

        Raises:
            HarnessFault: The disk is full or gone.
        """
        report = LossReport()
        encoder = msgspec.json.Encoder()
        with written_atomically(path) as beside, beside.open("wb") as file:
            for row in self.rows(episodes, report):
                file.write(_one_line(encoder.encode(row)))
        return report


def _one_line(encoded: bytes) -> bytes:
    """End the line, and escape what else Unicode takes for a line's end: whoever splits lines gets whole objects."""
    for character in ("\u0085", "\u2028", "\u2029"):
        encoded = encoded.replace(character.encode(), f"\\u{ord(character):04x}".encode())
    return encoded + b"\n"
