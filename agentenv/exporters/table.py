"""The exporters there are, by the name ``export --to`` calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from agentenv.core.exporter import Exporter
from agentenv.exporters.jsonl import JsonlExporter
from agentenv.exporters.parquet import ParquetExporter


class ExporterFactory(Protocol):
    """Makes an exporter; ``run_id`` goes into every row."""

    def __call__(self, *, run_id: str | None = None) -> Exporter:
        """Make one."""
        ...


EXPORTERS: Mapping[str, ExporterFactory] = {"jsonl": JsonlExporter, "parquet": ParquetExporter}
