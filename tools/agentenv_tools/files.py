"""``files_list``, ``files_read``, ``files_write``, ``files_edit``: the files of the workspace."""

from __future__ import annotations

from typing import Annotated

from agentenv.core.sandbox import FileEntry, Sandbox
from agentenv.core.tool import InvalidArguments, Result, ToolContext
from agentenv.toolkit import sandbox_of, tool
from agentenv.toolkit.off_loop import off_loop
from agentenv.toolkit.output import visible
from msgspec import Meta

from agentenv_tools import file_texts
from agentenv_tools.answers import refused, unusable
from agentenv_tools.arguments import text_argument
from agentenv_tools.file_texts import Lines, found, lines_of, not_once
from agentenv_tools.search import files_search

MAX_FILE_BYTES = 4 << 20
"""Largest file that is read or edited."""
_MAX_ENTRIES = 500
_NOTE_BYTES = 200
"""Room for the note behind a part of a file."""
_SUFFIX = {"dir": "/", "link": "@"}


@tool(needs_sandbox=True, parallel=True, example={"path": "."})
async def files_list(context: ToolContext, path: str = ".", depth: Annotated[int, Meta(ge=1, le=8)] = 1) -> Result:
    """List a folder of the workspace: sizes in bytes, folders with "/", links with "@".

    Args:
        path: The folder, relative to the workspace.
        depth: How many levels of folders to list.
        context: The episode's; filled in, not shown.
    """
    lines: list[str] = []
    try:
        await _list(sandbox_of(context), text_argument("path", path), depth, lines)
    except OSError as error:
        return unusable(path, error)
    if len(lines) > _MAX_ENTRIES:
        lines[_MAX_ENTRIES:] = [f"[more than {_MAX_ENTRIES} entries: list a folder inside, or with less depth]"]
    return Result(text="\n".join(lines) or "[the folder is empty]")


@tool(
    needs_sandbox=True,
    parallel=True,
    sources=(file_texts,),
    example={"path": "README.md", "first_line": 1, "last_line": 40},
)
async def files_read(
    path: str,
    context: ToolContext,
    first_line: Annotated[int, Meta(ge=1)] = 1,
    last_line: Annotated[int, Meta(ge=1)] | None = None,
) -> Result:
    """Read a text file of the workspace, or a range of its lines.

    Args:
        path: The file, relative to the workspace.
        first_line: First line to show, counted from 1.
        last_line: Last line to show; leave it out for the end.
        context: The episode's; filled in, not shown.
    """
    try:
        content = await sandbox_of(context).read(text_argument("path", path), max_bytes=MAX_FILE_BYTES + 1)
    except OSError as error:
        return unusable(path, error)
    if not content:
        return Result(text="[the file is empty]")
    room = context.output_cap_bytes - _NOTE_BYTES
    part = await off_loop(len(content), lines_of, content[:MAX_FILE_BYTES], first_line, last_line, room)
    if first_line > part.total:
        return refused(f"{visible(path)} has {part.total} lines; line {first_line} does not exist")
    if last_line is not None and last_line < first_line:
        return refused(f"last_line ({last_line}) is before first_line ({first_line})")
    return Result(text="\n".join([*part.shown, *_notes(first_line, part, len(content) > MAX_FILE_BYTES)]))


@tool(needs_sandbox=True, example={"path": "notes.txt", "content": "First line\n"})
async def files_write(path: str, content: str, context: ToolContext) -> Result:
    """Write a text file of the workspace; its folders are made, and what it held before is replaced.

    Args:
        path: The file, relative to the workspace.
        content: The whole content.
        context: The episode's; filled in, not shown.
    """
    data = _utf8("content", content)
    try:
        await sandbox_of(context).write(text_argument("path", path), data)
    except OSError as error:
        return unusable(path, error)
    return Result(text=f"Wrote {len(data):,} bytes to {visible(path)}.")


@tool(needs_sandbox=True, sources=(file_texts,), example={"path": "main.py", "old": "x = 1", "new": "x = 2"})
async def files_edit(path: str, old: str, new: str, context: ToolContext) -> Result:
    """Replace one piece of text in a file. It must occur exactly once: include enough of the lines around it.

    Args:
        path: The file, relative to the workspace.
        old: The text to replace, exactly as it is in the file.
        new: The text to put in its place.
        context: The episode's; filled in, not shown.
    """
    sandbox, path = sandbox_of(context), text_argument("path", path)
    before, after = _utf8("old", old), _utf8("new", new)
    if not before:
        return refused('argument "old" is empty: give the text to replace, or write the file with files_write')
    try:
        content = await sandbox.read(path, max_bytes=MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            return refused(f"{visible(path)} is larger than {MAX_FILE_BYTES:,} bytes: too large to edit")
        if problem := await off_loop(len(content), not_once, content, before):
            return refused(f"{problem} in {visible(path)}; nothing was changed")
        changed, line = await off_loop(len(content), _replaced, content, before, after)
        await sandbox.write(path, changed)
    except OSError as error:
        return unusable(path, error)
    return Result(text=f"Replaced 1 occurrence at line {line} of {visible(path)}.")


files = (files_list, files_read, files_write, files_edit, files_search)
"""The tools of this module, in the order in which the policy is told of them."""


async def _list(sandbox: Sandbox, path: str, depth: int, lines: list[str]) -> None:
    """Collect the lines of a folder and those below it, no more than one over the bound."""
    for entry in await sandbox.list(path):
        inner = entry.name if path == "." else f"{path.rstrip('/')}/{entry.name}"
        lines.append(_entry(inner, entry))
        if entry.kind == "dir" and depth > 1 and len(lines) <= _MAX_ENTRIES:
            await _list(sandbox, inner, depth - 1, lines)
        if len(lines) > _MAX_ENTRIES:
            return


def _entry(path: str, entry: FileEntry) -> str:
    shown = visible(path).replace("\n", "\\n")
    return f"{shown} {entry.size_bytes}" if entry.kind == "file" else f"{shown}{_SUFFIX.get(entry.kind, ' (special)')}"


def _replaced(content: bytes, before: bytes, after: bytes) -> tuple[bytes, int]:
    """Put a text in the place of one that is there; say in which line."""
    at = found(content, before)
    return content[:at] + after + content[at + len(before) :], content.count(b"\n", 0, at) + 1


def _notes(first: int, part: Lines, cut: bool) -> list[str]:
    """Say which part of the file this is; nothing if it is the whole."""
    shown, wanted, total = len(part.shown), part.wanted, part.total
    count = f"more than {total}" if cut else str(total)
    notes: list[str] = []
    if shown < total or cut:
        notes.append(f"[lines {first} to {first + shown - 1} of {count}]")
    if shown < wanted:
        notes.append(f"[cut to fit: go on with first_line={first + shown}]")
    elif cut:
        notes.append(f"[only the first {MAX_FILE_BYTES:,} bytes can be read]")
    return notes


def _utf8(name: str, text: str) -> bytes:
    """Encode text for a file.

    Raises:
        InvalidArguments: It has a lone surrogate.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArguments(
            f'argument "{name}" contains a lone surrogate at position {error.start}, which no file can hold'
        ) from error
