"""``agentenv export``: records to rows of another format, with a report of what did not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    to: Annotated[str, typer.Option(help="A format of `agentenv list exporters`.")] = "parquet",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File; default RUN/export.FORMAT.")] = None,
    every_attempt: Annotated[bool, typer.Option("--every-attempt", help="Not only the one that stands.")] = False,
) -> None:
    """Write one row per training sequence, and say what the format could not carry."""
    from agentenv.config.reading import stored_run
    from agentenv.errors import UnknownNameError
    from agentenv.exporters.table import EXPORTERS

    if to not in EXPORTERS:
        raise UnknownNameError.of("exporter", to, EXPORTERS)
    path = out or run / f"export.{to}"
    with stored_run(run) as stored:
        keys = stored.reader.attempts() if every_attempt else None
        report = EXPORTERS[to](run_id=stored.manifest["run"]["id"]).write(stored.records(keys), path)
    print(f"{report.rows} rows of {report.episodes} episodes in {path}")
    for reason, count in sorted(report.dropped.items()):
        print(f"left out: {count} x {reason}")


def register(app: typer.Typer, policy: typer.Typer) -> None:
    """Add the command."""
    del policy
    app.command()(export)
