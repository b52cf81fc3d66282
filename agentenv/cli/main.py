"""The command line: a thin skin. It parses, calls, prints, and turns errors into exit codes.

Exit codes: 0 done; 1 the thing asked about does not hold (audit, gate); 2 usage; 3 a fault stopped the work; 130
interrupted.
"""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from agentenv import __version__
from agentenv.errors import AgentEnvError, UsageError


def command_line() -> typer.Typer:
    """Make the command line of all commands."""
    from agentenv.cli import collect, describe_mcp, doctor, export, listing, serve, serve_tools, show, stats, verify

    app = typer.Typer(
        name="agentenv",
        help="Multi-turn agent environments that leave a token-exact record of every step.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        rich_markup_mode=None,  # drawing help with rich costs more than all the rest of it
    )
    policy_app = typer.Typer(help="Serve a local model.", no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(policy_app, name="policy")
    app.callback(invoke_without_command=True)(root)
    for module in (collect, show, verify, stats, export, listing, doctor, serve, serve_tools, describe_mcp):
        module.register(app, policy_app)
    return app


def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Multi-turn agent environments that leave a token-exact record of every step."""
    if version:
        print(f"agentenv {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # not every terminal can write what models write
    try:
        command_line()()
    except UsageError as error:
        _fail(error, 2)
    except AgentEnvError as error:
        _fail(error, 3)
    except BrokenPipeError:
        sys.exit(0)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def _fail(error: AgentEnvError, code: int) -> None:
    from agentenv.cli.terminal import harmless

    print(harmless(f"agentenv: {error}"), file=sys.stderr)
    sys.exit(code)
