"""``agentenv verify``: audits a run against the laws, and with an engine re-scores what was sampled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentenv.cli.running import run as run_async

if TYPE_CHECKING:
    from agentenv.config.reading import StoredRun
    from agentenv.engine.audit import Finding
    from agentenv.records.episode import EpisodeRecord


def verify(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    engine: Annotated[
        str | None, typer.Option(help="Address of the engine: re-score every sampled token with it.")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Where to load the tokenizer from instead.")] = None,
    tolerance: Annotated[float, typer.Option(help="Largest difference of log-probs that is no breach.")] = 1e-3,
    most: Annotated[int, typer.Option(min=0, help="Breaches to print.")] = 20,
) -> None:
    """Audit every attempt of a run against the laws; exit 1 if one is broken."""
    from agentenv.cli.terminal import harmless
    from agentenv.config.reading import stored_run
    from agentenv.errors import ConfigError

    if not tolerance >= 0:
        raise ConfigError(f"--tolerance must be a difference of 0 or more, got {tolerance}.")
    with stored_run(run) as stored:
        found = stored.audit(tokenizer)
        findings = found.findings
        if engine is not None:
            findings += _rescored(stored, found.records, engine, tolerance)
    for finding in findings[:most]:
        print(harmless(f"law {finding.law}  {finding.where}: {finding.text}"))
    if len(findings) > most:
        print(f"… and {len(findings) - most} more")
    print(f"{len(findings)} breaches in {len(found.records)} attempts")
    if findings:
        raise typer.Exit(1)


def _rescored(stored: StoredRun, records: list[EpisodeRecord], engine: str, tolerance: float) -> list[Finding]:
    from agentenv.config.options import blaming
    from agentenv.config.run_config import PolicyConfig

    with blaming("--engine"):
        found = run_async(stored.rescore(records, engine, tolerance=tolerance, api_key=PolicyConfig().api_key))
    print(
        f"{found.compared} log-probs compared with the engine's own, largest difference {found.worst:.2g}; "
        f"{found.unknown} of unknown distribution, {found.unscored} that the engine does not score"
    )
    return found.findings


def register(app: typer.Typer, policy: typer.Typer) -> None:
    """Add the command."""
    del policy
    app.command()(verify)
