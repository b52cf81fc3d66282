"""What an MCP server offers, written down: the part of it that reaches a policy, and who said so."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentenv.errors import ConfigError, ended
from agentenv.toolkit.schema_form import fault_of

MOST_TOOLS = 256
MOST_TOOL_BYTES = 64 << 10
"""Of one tool's description and schemas as JSON: all but that of results goes into every prompt."""


class DescribedTool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tool, as its server describes it."""

    name: str
    """What the server calls it."""
    description: str
    parameters: dict[str, Any]
    """JSON Schema of an object."""
    output: dict[str, Any] | None = None
    """JSON Schema of structured results; None where the server promises none."""
    parallel: bool = False
    """Whether the server says that it changes nothing (``readOnlyHint``), or nothing more when called again
    (``idempotentHint``)."""


class Description(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server's tools at one moment, and which server that was."""

    server: str
    """Its own name; empty where it gives none."""
    version: str
    protocol: str
    """Revision of the protocol that was agreed on."""
    tools: tuple[DescribedTool, ...]

    @property
    def sha256(self) -> str:
        """Hash of the tools: names, texts, schemas, hints."""
        return hashlib.sha256(msgspec.json.encode(self.tools, order="sorted")).hexdigest()

    def encoded(self) -> bytes:
        """Give the content of a description file: JSON, indented, keys in order."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=2) + b"\n"

    def difference(self, other: Description) -> str:
        """Say in which way another description is not this one; empty if it is the same."""
        for what in ("server", "version", "protocol"):
            if getattr(self, what) != getattr(other, what):
                return f"{what} {getattr(self, what)!r} was described, and now it is {getattr(other, what)!r}"
        before, after = ({tool.name: tool for tool in one.tools} for one in (self, other))
        for told, names in (("gone", before.keys() - after.keys()), ("new", after.keys() - before.keys())):
            if names:
                return f"{told} since it was described: {', '.join(sorted(names))}"
        changed = [name for name, tool in before.items() if after[name] != tool]
        return f"changed since it was described: {', '.join(changed)}" if changed else ""


def read_description(path: Path) -> Description:
    """Read a description file.

    Raises:
        ConfigError: There is none, or it is something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"The description {str(path)!r} of an MCP server cannot be read: {ended(error.strerror)} "
            "agentenv describe-mcp writes one."
        ) from error
    try:
        described = msgspec.json.decode(content, type=Description)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{str(path)!r} is no description of an MCP server: {ended(error)}") from error
    check_tools(described.tools, str(path))
    return described


def check_tools(tools: Sequence[DescribedTool], whose: str) -> None:
    """Refuse tools that no policy could be given.

    Raises:
        ConfigError: Too many, two of one name, one too large, or a schema that is none.
    """
    if len(tools) > MOST_TOOLS:
        raise ConfigError(f"MCP server {whose} has {len(tools)} tools; {MOST_TOOLS} are the most a prompt is given")
    twice = [name for name, count in Counter(tool.name for tool in tools).items() if count > 1]
    if twice:
        raise ConfigError(
            f"MCP server {whose} lists more than one tool called {', '.join(map(repr, twice))}: a call could not say "
            "which is meant"
        )
    for tool in tools:
        _check_tool(tool, whose)


def _check_tool(tool: DescribedTool, whose: str) -> None:
    where = f"MCP server {whose}: tool {tool.name!r}"
    if not tool.name:
        raise ConfigError(f"MCP server {whose} lists a tool without a name")
    if fault := fault_of(tool.parameters, of_object=True):
        raise ConfigError(f"{where} has no valid schema: {ended(fault)}")
    if tool.output is not None and (fault := fault_of(tool.output)):
        raise ConfigError(f"{where} has no valid schema of its results: {ended(fault)}")
    try:
        size = len(msgspec.json.encode(tool))
    except UnicodeEncodeError as error:
        raise ConfigError(f"{where}: its name or description has lone surrogates, which are no text") from error
    if size > MOST_TOOL_BYTES:
        raise ConfigError(
            f"{where}: its description and schemas take {size:,} bytes; at most {MOST_TOOL_BYTES:,} go into a prompt"
        )
