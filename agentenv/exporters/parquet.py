"""Parquet: one row for each training sequence, typed, in row groups that fit memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agentenv.core.exporter import LossReport
from agentenv.errors import ConfigError
from agentenv.exporters.files import written_atomically
from agentenv.exporters.rows import ROW_VERSION, rows_of
from agentenv.exporters.schema import arrow_schema
from agentenv.records.episode import EpisodeRecord

_GROUP_TOKENS = 1 << 20
_GROUP_ROWS = 4096


class ParquetExporter:
    """Columns with types (int32 ids, float32 log-probs with nulls), for any trainer that reads Arrow."""

    name = "parquet"

    def __init__(self, *, run_id: str | None = None) -> None:
        self._run_id = run_id

    def rows(self, episodes: Iterable[EpisodeRecord], report: LossReport) -> Iterator[dict[str, Any]]:
        """Give the rows, filling the report."""
        return rows_of(episodes, report, run_id=self._run_id)

    def write(self, episodes: Iterable[EpisodeRecord], path: Path) -> LossReport:
        """Write a file atomically, holding one row group in memory.

        Raises:
            ConfigError: pyarrow is missing.
            HarnessFault: The disk is full or gone.
        """
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise ConfigError("Export to Parquet needs pyarrow: pip install pyarrow.") from error
        report = LossReport()
        schema = arrow_schema().with_metadata({"agentenv.row_version": str(ROW_VERSION)})
        with written_atomically(path) as beside, pq.ParquetWriter(beside, schema, compression="zstd") as writer:
            for group in _groups(self.rows(episodes, report)):
                writer.write_table(pa.Table.from_pylist(group, schema=schema))
        return report


def _groups(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    tokens = 0
    for row in rows:
        group.append(row)
        tokens += len(row["token_ids"])
        if tokens >= _GROUP_TOKENS or len(group) >= _GROUP_ROWS:
            yield group
            group, tokens = [], 0
    if group:
        yield group
