"""Which MCP server, how it is reached, and what it was described to offer."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from agentenv.core.hashing import sha256_of
from agentenv.errors import ConfigError
from agentenv.toolkit.mcp.description import DescribedTool, Description, check_tools, read_description
from agentenv.toolkit.references import NotInlined, inlined

DEFAULT_TIMEOUT_S = 60.0
PROGRAM = "{program}"
"""Stands in a command or its environment for the folder into which the server's own program is unpacked."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_UNPACK = 'mkdir -p "$1" && tar -xf "$2" -C "$1" && shift 2 && exec "$@"'


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioAddress:
    """A command that is started in the episode's sandbox and speaks over its stdin and stdout."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    program: bytes = b""
    """A tar archive of the server's own files; empty where the sandbox has all it needs."""

    def argv(self, name: str) -> tuple[str, ...]:
        """Give what is started: the command, after its program is unpacked."""
        place = f"/tmp/mcp-{name}"  # noqa: S108 - in the sandbox, which has a /tmp of its own
        command = tuple(part.replace(PROGRAM, place) for part in self.command)
        if not self.program:
            return command
        return ("/bin/sh", "-c", _UNPACK, "sh", place, archive_path(name), *command)

    def environment(self, name: str) -> dict[str, str]:
        """Give what is added to its environment."""
        return {key: value.replace(PROGRAM, f"/tmp/mcp-{name}") for key, value in self.env.items()}  # noqa: S108


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAddress:
    """A server that somebody else runs, spoken to from the harness over streamable HTTP."""

    url: str
    headers_env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Header to the environment variable that holds its value: secrets are in no file and no record."""


Address = StdioAddress | HttpAddress


@dataclass(frozen=True, kw_only=True)
class McpServer:
    """One server, known by its description."""

    name: str
    """What tasks and messages call it; also the prefix of its tools' names where they would meet others'."""
    address: Address
    described: Description
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Of one call; reaching it is a result, and the call is cancelled at the server."""

    @cached_property
    def sha256(self) -> str:
        """Hash of all that makes it what it is: how it is started or reached, and what it was described to be."""
        return sha256_of({"address": self.address, "described": self.described.encoded(), "timeout": self.timeout_s})

    @cached_property
    def tools(self) -> tuple[DescribedTool, ...]:
        """What it was described to offer, but without references: prompts, examples and checks need not follow them."""
        return tuple(map(_without_references, self.described.tools))

    @property
    def files(self) -> dict[str, bytes]:
        """Files that the workspace needs for it: the archive of its program, if it brings one."""
        program = self.address.program if isinstance(self.address, StdioAddress) else b""
        return {archive_path(self.name): program} if program else {}


def mcp_stdio(
    name: str,
    *,
    command: Sequence[str],
    described: Path | Description,
    env: Mapping[str, str] | None = None,
    program: Path | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> McpServer:
    """Make a server that is started inside the sandbox of each episode.

    Args:
        name: What to call it.
        command: Its arguments. Whatever it runs must be in the sandbox: below ``/usr``, in the workspace, or in
            ``program``.
        described: What it offers, or the file that says so; ``agentenv describe-mcp`` writes one.
        env: Added to the sandbox's minimal environment.
        program: A folder of this machine that is carried into the sandbox as one archive, and unpacked beside the
            workspace where ``{program}`` stands in ``command`` or ``env``, such as that of ``pip install --target``.
            Give the task ``files=server.files``.
        timeout_s: Of one call.

    Raises:
        ConfigError: A name or a setting that cannot work, or no description.
    """
    if isinstance(command, str) or not command:
        raise ConfigError(f"MCP server {name!r}: command must be a sequence of arguments, got {command!r}")
    address = StdioAddress(
        command=tuple(command), env=dict(env or {}), program=b"" if program is None else packed(program)
    )
    return _server(name, address, described, timeout_s)


def mcp_http(
    name: str,
    url: str,
    *,
    described: Path | Description,
    headers_env: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> McpServer:
    """Make a server that is reached over streamable HTTP, by the harness and not from the sandbox.

    Every episode has a session of its own with it; what it keeps beside that is shared by all of them.

    Args:
        name: What to call it.
        url: Its endpoint, such as ``http://127.0.0.1:8000/mcp``.
        described: As of `mcp_stdio`.
        headers_env: Header to the environment variable with its value, read when a connection is made.
        timeout_s: Of one call.

    Raises:
        ConfigError: As `mcp_stdio`; or no address of this kind, or one with a password in it.
    """
    check_url(url)
    return _server(name, HttpAddress(url=url, headers_env=dict(headers_env or {})), described, timeout_s)


def check_url(url: str) -> None:
    """Refuse what is no address of a server.

    Raises:
        ConfigError: Not http or https, no host, or with a user's name in it, which would be recorded.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"An MCP server over HTTP has an address such as http://127.0.0.1:8000/mcp, got {url!r}")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"The address of the MCP server at {parts.hostname} has a password in it; use headers_env")


def check_name(name: str) -> None:
    """Refuse a name that could not be part of a tool's.

    Raises:
        ConfigError: Not 1 to 32 letters, digits, ``_`` or ``-``.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"The name of an MCP server must be 1 to 32 letters, digits, '_' or '-', got {name!r}")


def archive_path(name: str) -> str:
    """Say where in the workspace the archive of a server's program is."""
    return f".mcp/{name}.tar"


def packed(folder: Path) -> bytes:
    """Pack a folder such that equal content gives equal bytes: in order, without owners and times; no caches.

    Raises:
        ConfigError: It is no folder.
        OSError: Something in it cannot be read.
    """
    if not folder.is_dir():
        what = "it is a file" if folder.exists() else "there is nothing of that name"
        raise ConfigError(f"The program of an MCP server (--mcp-program) is a folder, got {str(folder)!r}: {what}")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            if "__pycache__" in path.parts or not (path.is_file() or path.is_symlink()):
                continue
            archive.add(path, arcname=path.relative_to(folder).as_posix(), recursive=False, filter=_plain)
    return buffer.getvalue()


def _without_references(tool: DescribedTool) -> DescribedTool:
    output = None if tool.output is None else _inlined(tool.output)
    return msgspec.structs.replace(tool, parameters=_inlined(tool.parameters), output=output)


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Give a schema without references; one that cannot do without (it may refer to itself) as it is."""
    try:
        return inlined(schema)
    except NotInlined:
        return schema


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    entry.mode = 0o755 if entry.mode & 0o111 else 0o644
    return entry


def _server(name: str, address: Address, described: Path | Description, timeout_s: float) -> McpServer:
    check_name(name)
    if not timeout_s > 0:
        raise ConfigError(f"MCP server {name!r}: timeout_s must be positive, got {timeout_s}")
    if isinstance(described, Description):
        check_tools(described.tools, repr(name))
    else:
        described = read_description(described)
    return McpServer(name=name, address=address, described=described, timeout_s=timeout_s)
