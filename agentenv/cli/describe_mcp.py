"""``agentenv describe-mcp``: what an MCP server offers, for a suite to be made of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentenv.cli.paths import given_path
from agentenv.cli.running import run

if TYPE_CHECKING:
    from agentenv.toolkit.mcp.description import Description


def describe_mcp(
    server: Annotated[str, typer.Argument(help="NAME=COMMAND, started in a sandbox, or NAME=URL.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", parser=given_path, metavar="PATH", help="File to write; default: print it."),
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option(
            parser=given_path,
            metavar="PATH",
            help="Folder carried into the sandbox; {program} in the command stands for it.",
        ),
    ] = None,
    sandbox: Annotated[str, typer.Option(help="auto, or a provider of `agentenv list sandboxes`.")] = "auto",
) -> None:
    """Start or reach an MCP server, and write down its tools for mcp_stdio and mcp_http."""
    from agentenv.errors import ConfigError

    if program is not None and not program.is_dir():
        raise ConfigError(f"--program {program}: there is no such folder.")
    described = run(_describe(server, program, sandbox))
    if out is None:
        from agentenv.cli.terminal import harmless_json

        print(harmless_json(described.encoded().decode()), end="")
        return
    try:
        out.write_bytes(described.encoded())
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {error.strerror}.") from error
    print(f"{len(described.tools)} tools of {described.server} {described.version}, described in {out}")


async def _describe(server: str, program: Path | None, sandbox: str) -> Description:
    from agentenv.config.mcp import described, parse_server

    name = server.partition("=")[0]
    name, address = parse_server(server, {} if program is None else {name: program}, given_as="The server")
    return await described(name, address, sandbox)


def register(app: typer.Typer, policy: typer.Typer) -> None:
    """Add the command."""
    del policy
    app.command("describe-mcp")(describe_mcp)
