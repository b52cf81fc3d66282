"""``agentenv serve-tools``: our tools as an MCP server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentenv.cli.paths import given_path
from agentenv.cli.running import run

if TYPE_CHECKING:
    from agentenv.core.tool import Tool

_LEASE_S = 60.0


def serve_tools(
    tools: Annotated[list[str] | None, typer.Argument(help="Of `agentenv list tools`; default: all.")] = None,
    http: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one. Default: stdio.")
    ] = None,
    sandbox: Annotated[str, typer.Option(help="auto, or a provider of `agentenv list sandboxes`.")] = "auto",
    files: Annotated[
        Path | None,
        typer.Option(parser=given_path, metavar="PATH", help="Folder whose files the workspace begins with."),
    ] = None,
    output_cap: Annotated[int, typer.Option(min=1, help="Most bytes of a result that are shown.")] = 16_384,
    tool_timeout: Annotated[float, typer.Option(help="Seconds for one call.")] = 120.0,
) -> None:
    """Serve tools over MCP until the client leaves (stdio) or Ctrl-C (HTTP), with a sandbox where one is needed."""
    from agentenv.errors import ConfigError, UsageError

    if not tool_timeout > 0:
        raise ConfigError(f"--tool-timeout must be more than 0 seconds, got {tool_timeout}.")
    try:
        from agentenv.toolkit.mcp import serving as _serving
    except ModuleNotFoundError as error:
        raise UsageError(
            f"Serving tools needs the official MCP SDK, and {error.name} is not installed: pip install 'mcp>=2.3'"
        ) from error
    del _serving
    run(_serve(_chosen(tools or []), http, sandbox, files, output_cap, tool_timeout))


def _check_stdin() -> None:
    """Refuse to wait for a client that cannot come.

    Raises:
        UsageError: Nobody can write to stdin as it is: it is a file, or nothing.
    """
    import os
    import stat

    from agentenv.errors import UsageError

    mode = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(0)):
        raise UsageError(
            "Serving over stdio needs a pipe as stdin, which an MCP client gives to the command that it starts; to "
            "serve on a port instead, give --http PORT."
        )


def _chosen(names: list[str]) -> list[Tool]:
    from agentenv.registry import load_tools, tool_names

    found = [tool for name in names or tool_names() for tool in load_tools(name)]
    return list({tool.sha256: tool for tool in found}.values())  # one may be registered by itself and in a set


async def _serve(
    tools: list[Tool], http: int | None, sandbox: str, files: Path | None, output_cap: int, tool_timeout: float
) -> None:
    import tempfile
    from contextlib import AsyncExitStack

    from agentenv.config.sandboxes import check_provider_name, choose_provider
    from agentenv.core.deadline import Deadline
    from agentenv.core.sandbox import SandboxSpec
    from agentenv.core.tool import ToolContext
    from agentenv.errors import ConfigError
    from agentenv.storage.blobs import FolderBlobs
    from agentenv.toolkit.mcp.serving import opened
    from agentenv.toolkit.toolbox import Toolbox

    toolbox = Toolbox(tools)
    check_provider_name(sandbox)
    content = _content(files)
    if content and not toolbox.needs_sandbox:
        raise ConfigError(f"--files {files}: none of these tools has a workspace for them to be in.")
    if http is None:
        _check_stdin()
    async with AsyncExitStack() as stack:
        leased = None
        if toolbox.needs_sandbox:
            provider = await stack.enter_async_context(await choose_provider(sandbox))
            spec = SandboxSpec(files=content, labels={"served": "serve-tools"})
            leased = await stack.enter_async_context(await provider.lease(spec, Deadline.after(_LEASE_S, "lease")))
        blobs = FolderBlobs(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentenv-tools-"))))
        context = ToolContext(sandbox=leased, blobs=blobs, output_cap_bytes=output_cap, resources=AsyncExitStack())
        server = await stack.enter_async_context(opened(toolbox, context, timeout_s=tool_timeout))
        if http is None:
            await server.serve_stdio()
        else:
            names = ", ".join(spec.name for spec in toolbox.specs)
            await server.serve_http(http, lambda url: print(f"serving {names} at {url}", file=sys.stderr, flush=True))


def _content(folder: Path | None) -> dict[str, bytes]:
    """Read the files of a folder.

    Raises:
        ConfigError: It is none, or one of them cannot be read.
    """
    from agentenv.errors import ConfigError

    if folder is None:
        return {}
    if not folder.is_dir():
        raise ConfigError(f"--files {folder}: there is no such folder.")
    try:
        found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}
    except OSError as error:
        raise ConfigError(f"--files {folder}: {error.filename} cannot be read: {error.strerror}.") from error


def register(app: typer.Typer, policy: typer.Typer) -> None:
    """Add the command."""
    del policy
    app.command("serve-tools")(serve_tools)
