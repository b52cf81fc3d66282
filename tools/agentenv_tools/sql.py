"""``sql``: one statement on a SQLite or DuckDB file of the workspace, run inside the sandbox by its own Python."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Execution, Sandbox
from agentenv.core.tool import Result, ToolContext
from agentenv.errors import ToolFault
from agentenv.records.axes import CallStatus
from agentenv.toolkit import FunctionTool, sandbox_of, tool
from agentenv.toolkit.output import decode, visible
from msgspec import Meta

from agentenv_tools import sql_driver
from agentenv_tools.answers import refused, unusable
from agentenv_tools.arguments import MAX_TIMEOUT_S, text_argument, within

_PROGRAM = "python3"
_TIMEOUT_S = 20.0
_ROOM_BYTES = 512
"""For what stands around the rows."""
_CONTEXT_CHARS = 200
"""Of a long line with an error in it that are shown."""
_SQLITE, _DUCKDB = b"SQLite format 3\0", b"DUCK"
_DUCKDB_AT = 8
"""Offset of DuckDB's magic bytes. Source: the storage format of DuckDB, main header block."""
_DUCKDB_ENDINGS = (".duckdb", ".ddb", ".duck")

Engine = Literal["sqlite", "duckdb"]
Parameter = str | int | float | None


class _Question(msgspec.Struct, kw_only=True):
    """See `sql_driver`."""

    database: str
    query: str
    parameters: list[Parameter]
    writable: bool
    max_rows: int
    max_bytes: int
    engine: Engine = "sqlite"


class _Answer(msgspec.Struct):
    """See `sql_driver`."""

    columns: list[str]
    rows: list[list[str]]
    more: Literal["", "rows", "bytes"]
    changed: int
    error: str
    at: int | None
    missing: str


def sql_tool(*, writable: bool = False) -> FunctionTool:
    """Make the tool for a task's ``tools``.

    Args:
        writable: Whether statements may change the database, or make a new one. Else the file is opened for reading
            alone, and calls of one turn run at once.
    """

    async def sql(
        database: str,
        query: Annotated[str, Meta(min_length=1)],
        context: ToolContext,
        deadline: Deadline,
        parameters: list[Parameter] | None = None,
        max_rows: Annotated[int, Meta(ge=1, le=1_000)] = 50,
        timeout_s: Annotated[float, Meta(gt=0, le=MAX_TIMEOUT_S)] = _TIMEOUT_S,
    ) -> Result:
        asked = _Question(
            database=f"./{text_argument('database', database)}",
            query=text_argument("query", query),
            parameters=parameters or [],
            writable=writable,
            max_rows=max_rows,
            max_bytes=max(0, context.output_cap_bytes - _ROOM_BYTES),
        )
        return await _answered(asked, sandbox_of(context), within(timeout_s, deadline), deadline)

    may = "It may change the database, which is made if there is none" if writable else "The database is only read"
    sql.__doc__ = f"""Run one SQL statement on a SQLite or DuckDB database in the workspace.

    {may}. Every call is a connection of its own. Rows are shown one a line, cells with " | " between them.

    Args:
        database: The file, relative to the workspace.
        query: One SQL statement.
        parameters: Values for the question marks in the query, in order.
        max_rows: Most rows to show.
        timeout_s: Seconds after which it is stopped.
        context: The episode's; filled in, not shown.
        deadline: When the harness stops waiting; filled in, not shown.
    """
    example = {"database": "data.db", "query": "SELECT name FROM users WHERE id = ?", "parameters": [7]}
    return tool(needs_sandbox=True, parallel=not writable, example=example, sources=(sql_driver,))(sql)


sql = sql_tool()
"""For reading alone."""


async def _answered(asked: _Question, sandbox: Sandbox, limit_s: float, deadline: Deadline) -> Result:
    path = asked.database.removeprefix("./")
    try:
        engine = await _engine(sandbox, path, writable=asked.writable)
    except OSError as error:
        return unusable(path, error)
    if engine is None:
        return refused(f'"{visible(path)}" is no SQLite or DuckDB database')
    asked.engine = engine
    stdin = json.dumps(msgspec.structs.asdict(asked)).encode()
    command = [_PROGRAM, "-I", "-c", _driver()]
    execution = await sandbox.run(command, deadline=deadline, timeout_s=limit_s, stdin=stdin)
    if execution.timed_out:
        text = f"The statement was stopped after its limit of {limit_s:.3g} s: simplify it, or give more timeout_s."
        return Result(text=text, status=CallStatus.TIMEOUT)
    return _shown(_answer(execution), asked.query, engine)


async def _engine(sandbox: Sandbox, path: str, *, writable: bool) -> Engine | None:
    """Find out what kind of database a file is; a new one goes by its name. None: it is none.

    Raises:
        OSError: It cannot be used.
    """
    by_name: Engine = "duckdb" if path.lower().endswith(_DUCKDB_ENDINGS) else "sqlite"
    try:
        head = await sandbox.read(path, max_bytes=len(_SQLITE))
    except FileNotFoundError:
        if writable:
            return by_name
        raise
    if head.startswith(_SQLITE):
        return "sqlite"
    if head[_DUCKDB_AT:].startswith(_DUCKDB):
        return "duckdb"
    return "sqlite" if not head and by_name == "sqlite" else None  # an empty file is an empty database of SQLite's


def _answer(execution: Execution) -> _Answer:
    """Read what the driver said.

    Raises:
        ToolFault: There is no Python, or it did not come to its end.
    """
    complaint = decode(execution.stderr.head).strip()
    if execution.exit_code in (126, 127):
        raise ToolFault.permanent(f"tool 'sql': the sandbox has no working {_PROGRAM}: {complaint[-200:]}")
    try:
        return msgspec.json.decode(execution.stdout.head + execution.stdout.tail, type=_Answer)
    except msgspec.DecodeError:
        # Killed for its memory or its processor time: the statement's own doing.
        last = complaint.rsplit("\n", 1)[-1][-200:]
        why = f"the statement ended its process (exit code {execution.exit_code}){f': {last}' if last else ''}"
        return _Answer(columns=[], rows=[], more="", changed=-1, error=why, at=None, missing="")


def _shown(answer: _Answer, query: str, engine: Engine) -> Result:
    if answer.missing:
        text = (
            f"The tool is unavailable for {'DuckDB' if engine == 'duckdb' else 'SQLite'} files: the Python of the "
            f"sandbox has no module {visible(answer.missing)}. Whoever runs this has to use a sandbox that has it, "
            f"such as a Docker image with it (pip install {visible(answer.missing)}; AGENTENV_DOCKER_IMAGE)."
        )
        return Result(text=text, status=CallStatus.UNAVAILABLE)
    if answer.error:
        place = "" if answer.at is None else f"\n{_place(query, answer.at)}"
        return Result(text=f"Error: {visible(answer.error)}{place}", status=CallStatus.ERROR)
    if not answer.columns:
        return Result(text="[done]" if answer.changed < 0 else f"[done: {answer.changed:,} rows changed]")
    lines = [" | ".join(row) for row in (answer.columns, *answer.rows)]
    return Result(text="\n".join([*lines, _count(answer)]))


def _count(answer: _Answer) -> str:
    count = len(answer.rows)
    if answer.more == "rows":
        return f"[more than {count:,} rows: narrow the query, or use LIMIT and OFFSET]"
    if answer.more == "bytes":
        return f"[{count:,} rows shown, there are more: the rest does not fit; ask for fewer columns or rows]"
    return f"[{count:,} row{'' if count == 1 else 's'}]"


def _place(query: str, at: int) -> str:
    """Show the line of the query that an offset is in, with a caret below."""
    before = query[:at]
    line, column = before.count("\n") + 1, at - (before.rfind("\n") + 1)
    text = query.split("\n")[line - 1].replace("\t", " ")
    start = max(0, column - _CONTEXT_CHARS // 2)
    return f"line {line}, column {column + 1}:\n  {text[start : start + _CONTEXT_CHARS]}\n  {' ' * (column - start)}^"


@functools.cache
def _driver() -> str:
    return Path(sql_driver.__file__).read_text(encoding="utf-8")
