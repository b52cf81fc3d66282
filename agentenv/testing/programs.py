"""Programs of the fake sandbox: what a command is answered with, by script."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A command as a script sees it."""

    argv: tuple[str, ...]
    """A line for the shell is ``("/bin/sh", "-c", line)``."""
    cwd: str
    """Relative to the workspace; ``.`` is the workspace."""
    env: Mapping[str, str]
    stdin: bytes
    files: dict[str, bytes]
    """The workspace itself: a script may change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """What a command does."""

    exit_code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    hangs: bool = False
    """It ends by its timeout only; no time passes."""


class Reaction(Enum):
    """What a kept process may do instead of answering."""

    DIES = "dies"
    HANGS = "hangs"
    """The request ends by its deadline; no time passes."""


Commands = Callable[[Invocation], Scripted | None]
"""What a command does; None if there is no such program."""
Answers = Callable[[bytes], bytes | Reaction]
"""How a kept process answers one line."""
Processes = Callable[[tuple[str, ...]], Answers | None]
"""A kept process for a command; None if there is no such program."""


def small_programs(invocation: Invocation) -> Scripted | None:
    """Do what the programs do that the contract suite uses: ``true false echo cat printenv pwd sleep``."""
    program, *arguments = invocation.argv
    if program == "cat" and arguments:
        path = resolve(posixpath.join(invocation.cwd, arguments[0]))
        if path not in invocation.files:
            return Scripted(exit_code=1, stderr=f"cat: {arguments[0]}: No such file or directory\n".encode())
        return Scripted(stdout=invocation.files[path])
    if program == "printenv":
        value = invocation.env.get(arguments[0])
        return Scripted(exit_code=1) if value is None else Scripted(stdout=value.encode() + b"\n")
    results = {
        "true": Scripted(),
        "false": Scripted(exit_code=1),
        "echo": Scripted(stdout=" ".join(arguments).encode("utf-8", "replace") + b"\n"),
        "cat": Scripted(stdout=invocation.stdin),
        "pwd": Scripted(stdout=posixpath.normpath(posixpath.join("/workspace", invocation.cwd)).encode() + b"\n"),
        "sleep": Scripted(hangs=True),
    }
    return results.get(program)


def small_processes(argv: tuple[str, ...]) -> Answers | None:
    """Be ``cat``, which answers every line with itself, ``sleep``, which never answers, or ``false``, which dies."""
    answers: dict[str, Answers] = {
        "cat": lambda line: line,
        "sleep": lambda _: Reaction.HANGS,
        "false": lambda _: Reaction.DIES,
    }
    return answers.get(argv[0])


def scripted(commands: Mapping[str | tuple[str, ...], Scripted]) -> Commands:
    """Make a script of a mapping: the arguments of a program, or a line for the shell, to what comes of it."""

    def play(invocation: Invocation) -> Scripted | None:
        if invocation.argv[:2] == ("/bin/sh", "-c") and invocation.argv[2] in commands:
            return commands[invocation.argv[2]]
        return commands.get(invocation.argv)

    return play


def resolve(path: str) -> str:
    """Give the path below the workspace, without dots; ``.`` is the workspace.

    Raises:
        PermissionError: It leads out.
        OSError: No file can have this name.
    """
    try:
        name = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ), path) from None
    if b"\0" in name:
        raise OSError(errno.EINVAL, "a file name has no NUL bytes", path)
    if any(len(part) > 255 for part in name.split(b"/")):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    place = posixpath.normpath(path)
    if place == ".." or place.startswith(("../", "/")):
        raise PermissionError(errno.EACCES, "the path leads out of the workspace", path)
    return place
