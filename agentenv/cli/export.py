"""``agentenv export``: records to rows of another format, with a report of what did not fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentenv.cli.paths import given_path

if TYPE_CHECKING:
    from agentenv.config.reading import StoredRun
    from agentenv.core.exporter import LossReport
    from agentenv.core.store import AttemptKey


def export(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    to: Annotated[str, typer.Option(help="A format of `agentenv list exporters`.")] = "parquet",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", parser=given_path, metavar="PATH", help="File; default RUN/export.FORMAT."),
    ] = None,
    every_attempt: Annotated[
        bool, typer.Option("--every-attempt", help="Also attempts that failed, were interrupted or replaced.")
    ] = False,
) -> None:
    """Write one row per training sequence, and say what is not trained and what the format could not carry.

    An episode is exported once it is done, by the attempt that stands. `agentenv list columns` says what is in a row.
    """
    from agentenv.cli.terminal import harmless
    from agentenv.config.reading import stored_run
    from agentenv.errors import UnknownNameError
    from agentenv.exporters.table import EXPORTERS

    if to not in EXPORTERS:
        raise UnknownNameError.of("exporter", to, EXPORTERS, where=" (--to)")
    path = out or run / f"export.{to}"
    with stored_run(run) as stored:
        finals = stored.finals()
        keys = stored.reader.attempts() if every_attempt else _done(stored, finals)
        report = EXPORTERS[to](run_id=stored.manifest["run"]["id"]).write(stored.records(keys), path)
    print(harmless(f"{report.rows} rows of {report.episodes} {_plural(report.episodes, 'episode')} in {path}"))
    for line in _lines(report, 0 if every_attempt else len(finals) - len(keys)):
        print(harmless(line))


def _done(stored: StoredRun, finals: list[AttemptKey]) -> list[AttemptKey]:
    """Give the attempts after which nothing is left to do: a trainer must not take a torn episode for a whole one."""
    from agentenv.rollout.schedule import is_done

    done = {key for key, last in stored.reader.last_facts() if is_done(last)}
    return [key for key in finals if key in done]


def _lines(report: LossReport, n_not_done: int) -> Iterator[str]:
    from agentenv.core.training import EXPLAINED

    if n_not_done:
        are, it = ("is", "it") if n_not_done == 1 else ("are", "them")
        yield f"left out: {n_not_done} {_plural(n_not_done, 'episode')} that {are} not done; finish {it} with --resume"
    for reason, count in sorted(report.untrained.items()):
        yield f"not trained: {count} sampled {_plural(count, 'token')}, {EXPLAINED[reason]}"
    for what, count in sorted(report.dropped.items()):
        yield f"left out: {count} x {what}"


def _plural(n: int, word: str) -> str:
    return word if n == 1 else f"{word}s"


def register(app: typer.Typer, policy: typer.Typer) -> None:
    """Add the command."""
    del policy
    app.command()(export)
