"""``agentenv show``: the episodes of a run, and one of them token by token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agentenv.config.reading import StoredRun


def show(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    episode: Annotated[
        str | None, typer.Argument(help="EPISODE, EPISODE:ATTEMPT, or `first`; default: list all.")
    ] = None,
    tokens: Annotated[bool, typer.Option(help="Show every token with its id and log-prob.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
    tokenizer: Annotated[str | None, typer.Option(help="Where to load the tokenizer from instead.")] = None,
) -> None:
    """Show the episodes of a run, or one of them: what was sampled, what tools said, what templates put there."""
    from agentenv.config.reading import stored_run

    if episode is None:
        _refuse_of_one(run, {"--tokens": tokens, "--json": as_json, "--tokenizer": tokenizer is not None})
    with stored_run(run) as stored:
        if episode is None:
            _list(stored)
            return
        key = stored.first() if episode == "first" else stored.find(episode)
        record = next(stored.records([key]))
        if as_json:
            from agentenv.cli.terminal import harmless_json
            from agentenv.records.codec import record_json

            print(harmless_json(record_json(record)))
            return
        from agentenv.cli.episode_view import print_episode

        print_episode(record, stored.renderer(tokenizer), tokens=tokens)


def _refuse_of_one(run: Path, given: dict[str, bool]) -> None:
    """Refuse options of one episode where none is named.

    Raises:
        UsageError: Says how to name one.
    """
    from agentenv.errors import UsageError

    for option, is_given in given.items():
        if is_given:
            raise UsageError(
                f"{option} is for one episode, and none is named: `agentenv show {run}` lists them; write "
                f"`agentenv show {run} EPISODE {option}`, where `first` is the first."
            )


_WIDE = 200
"""Columns of a table that goes to a file or a pipe."""


def _list(stored: StoredRun) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from agentenv.cli.terminal import harmless

    table = Table("episode", "attempt", "task", "turns", "sampled", "ended", "reward", "outcome", "breaches", box=None)
    for record in stored.records():
        ended = "interrupted" if record.reason is None else str(record.reason)
        if record.budget:
            ended += f" ({record.budget})"
        if record.fault:
            ended += f" [{record.fault.domain}]"
        cells = (
            record.episode_id,
            str(record.attempt),
            record.task_id,
            str(len(record.steps)),
            str(sum(step.completion_length for step in record.steps)),
            ended,
            "not scored" if record.reward is None else f"{record.reward:g}",
            str(record.outcome),
            str(len(record.breaches) or ""),
        )
        table.add_row(*(Text(harmless(cell)) for cell in cells))  # text as it is: brackets are no markup
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    console.print(table)


def register(app: typer.Typer, policy: typer.Typer) -> None:
    """Add the command."""
    del policy
    app.command()(show)
