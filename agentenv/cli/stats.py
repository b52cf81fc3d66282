"""``agentenv stats``: a run in numbers, both denominators always."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def stats(run: Annotated[Path, typer.Argument(help="Run folder.")]) -> None:
    """Print how episodes ended, what they were worth, and where time and tokens went."""
    print_stats(run)


def print_stats(run: Path) -> None:
    """Print the numbers of a run."""
    from agentenv.cli.terminal import harmless
    from agentenv.config.reading import stored_run
    from agentenv.metrics.stats import summarise
    from agentenv.metrics.text import stats_text

    with stored_run(run) as stored:
        keys = sorted(stored.reader.attempts())
        summary = summarise(stored.records(keys), wall_clock_s=stored.reader.wall_clock_s())
    print(harmless(stats_text(summary)))


def register(app: typer.Typer, policy: typer.Typer) -> None:
    """Add the command."""
    del policy
    app.command()(stats)
