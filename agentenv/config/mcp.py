"""MCP servers that a collection adds to every task's tools: described when it is opened, held to it from then on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentenv.config.options import blaming
from agentenv.config.run_config import RunConfig
from agentenv.config.sandboxes import choose_provider
from agentenv.core.deadline import Deadline
from agentenv.core.hashing import sha256_of
from agentenv.core.sandbox import SandboxSpec
from agentenv.core.task import Suite, Task
from agentenv.errors import ConfigError, ended
from agentenv.records.messages import Message
from agentenv.toolkit.mcp.connecting import describe
from agentenv.toolkit.mcp.description import Description
from agentenv.toolkit.mcp.server_tools import mcp_tools
from agentenv.toolkit.mcp.servers import (
    Address,
    HttpAddress,
    McpServer,
    StdioAddress,
    archive_path,
    check_name,
    check_url,
    packed,
)

_NAMED = re.compile(r"([A-Za-z0-9_-]{1,32})=(.+)", re.DOTALL)
_DESCRIBING_S = 120.0


def parse_server(spec: str, programs: Mapping[str, Path], *, given_as: str = "--mcp") -> tuple[str, Address]:
    """Read a server written as ``NAME=COMMAND`` or ``NAME=URL``.

    Args:
        spec: As it was given.
        programs: Folders that servers over stdio bring with them, by name.
        given_as: The option or argument that ``spec`` is the value of, for errors to name.

    Raises:
        ConfigError: Not of that form; a program for a server that is not started here.

    >>> parse_server("time=python3 -m mcp_server_time", {})[1].command
    ('python3', '-m', 'mcp_server_time')
    """
    named = _NAMED.fullmatch(spec)
    if named is None:
        raise ConfigError(
            f"{given_as} {spec}: expected NAME=COMMAND or NAME=URL, such as 'time=python3 -m mcp_server_time' or "
            "time=http://127.0.0.1:8000/mcp."
        )
    name, reached = named[1], named[2].strip()
    check_name(name)
    if reached.startswith(("http://", "https://")):
        with blaming(given_as, name):  # not the address: it may have a password in it
            check_url(reached)
        if name in programs:
            raise ConfigError(
                f"{given_as} {name}: a server at an address is started by somebody else, and takes no program with it; "
                "leave the program out, or give the server's command."
            )
        return name, HttpAddress(url=reached)
    try:
        command = tuple(shlex.split(reached))
    except ValueError as error:
        raise ConfigError(f"{given_as} {spec}: the command cannot be read: {ended(error)}") from error
    if not command:
        raise ConfigError(f"{given_as} {spec}: there is no command.")
    return name, StdioAddress(command=command, program=packed(programs[name]) if name in programs else b"")


def parse_programs(specs: Sequence[str]) -> dict[str, Path]:
    """Read folders of servers' programs written as ``NAME=FOLDER``.

    Raises:
        ConfigError: Not of that form.
    """
    programs: dict[str, Path] = {}
    for spec in specs:
        name, equals, folder = spec.partition("=")
        if not equals or not folder:
            raise ConfigError(f"--mcp-program {spec}: expected NAME=FOLDER, NAME being that of a server of --mcp.")
        programs[name] = Path(folder)
    return programs


async def with_servers(suite: Suite, run: RunConfig) -> Suite:
    """Add the servers that a run asks for to its suite, if it asks for any.

    Raises:
        ConfigError: A server cannot be reached, or offers what no policy could be given.
        SandboxFault: A server is started in a sandbox, and none works here.
    """
    programs = parse_programs(run.mcp_programs)
    addresses = [parse_server(spec, programs) for spec in run.mcp]
    if stray := sorted(programs.keys() - {name for name, _ in addresses}):
        raise ConfigError(f"--mcp-program {stray[0]}: there is no server of that name among --mcp.")
    if not addresses:
        return suite
    servers = [
        McpServer(name=name, address=address, described=await described(name, address, run.sandbox))
        for name, address in addresses
    ]
    mcp_tools(*servers)  # refuses two of one name
    return ServedSuite(suite, tuple(servers))


async def described(name: str, address: Address, sandbox: str) -> Description:
    """Describe one server, in a sandbox of its own where it is started in one.

    Args:
        name: What to call it.
        address: How it is reached.
        sandbox: Which provider, as `choose_provider` takes it.

    Raises:
        ConfigError: It cannot be reached, or offers what no policy could be given.
        SandboxFault: No sandbox works here.
    """
    deadline = Deadline.after(_DESCRIBING_S, f"the description of MCP server {name!r}")
    if isinstance(address, HttpAddress):
        try:
            return await describe(name, address, None, deadline)
        except ConfigError as error:
            raise ConfigError(f"{ended(error)} Is a server running at {_shown(address.url)}, path included?") from error
    spec = SandboxSpec(files={archive_path(name): address.program} if address.program else {})
    async with await choose_provider(sandbox) as provider, await provider.lease(spec, deadline) as leased:
        return await describe(name, address, leased, deadline)


def _shown(url: str) -> str:
    """Leave out what may hold a secret."""
    return url.partition("?")[0]


@dataclass(frozen=True, slots=True)
class ServedSuite:
    """A suite whose tasks have the tools of servers beside their own; see `core.task.Suite`."""

    suite: Suite
    servers: tuple[McpServer, ...]

    @property
    def name(self) -> str:
        """Of the suite."""
        return self.suite.name

    @property
    def size(self) -> int:
        """Of the suite."""
        return self.suite.size

    @property
    def levels(self) -> tuple[int, ...]:
        """Of the suite."""
        return self.suite.levels

    @property
    def sha256(self) -> str:
        """Hash of the suite and of every server."""
        return sha256_of([self.suite.sha256, *(server.sha256 for server in self.servers)])

    def task(self, seed: int, level: int = 1) -> Task:
        """Make the suite's task, with more tools."""
        task = self.suite.task(seed, level)
        tools = (*task.tools, *mcp_tools(*self.servers, beside=task.tools))
        files = {**task.files, **{path: content for server in self.servers for path, content in server.files.items()}}
        needs_sandbox = task.needs_sandbox or any(tool.needs_sandbox for tool in tools)
        content = sha256_of([task.content_sha256, *(tool.sha256 for tool in tools)])  # theirs tells the files, too
        return replace(task, tools=tools, files=files, needs_sandbox=needs_sandbox, content_sha256=content)

    def demonstrations(self, n: int, level: int = 1) -> Sequence[tuple[Message, ...]]:
        """Give the suite's own worked examples."""
        return self.suite.demonstrations(n, level)
