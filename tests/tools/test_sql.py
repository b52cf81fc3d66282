"""``sql``: read-only by default, bounded, and errors that point at the place in the statement."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import SandboxSpec
from agentenv.core.tool import ToolContext
from agentenv.errors import SandboxFault, ToolFault
from agentenv.records.axes import CallStatus
from agentenv.records.messages import ToolResult
from agentenv.testing.programs import Invocation, Scripted
from agentenv.testing.sandboxes import InMemoryProvider
from agentenv.toolkit import FunctionTool, Toolbox

from agentenv_tools.sql import sql, sql_tool
from agentenv_tools.sql_driver import occurrence
from tests.toolkit.kit import NO_DEADLINE, call_one, calls_of, make_context

READ_ONLY = "Error: no other file can be opened: this database is only read"
WRITING = sql_tool(writable=True)
SCHEMA = """
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, photo BLOB, score REAL);
INSERT INTO users VALUES (1, 'Ada', x'00ff', 1.5), (2, 'Bo
b', NULL, NULL), (3, 'Ünal', NULL, 3);
"""


@pytest.fixture
async def made(context: ToolContext, tmp_path: Path) -> ToolContext:
    """A context whose workspace has a SQLite database."""
    path = tmp_path / "data.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(SCHEMA)
    connection.close()
    assert context.sandbox is not None
    await context.sandbox.write("data.db", path.read_bytes())
    return context


async def ask(
    context: ToolContext, query: str, tool: FunctionTool = sql, *, database: str = "data.db", **more: Any
) -> ToolResult:
    return await call_one(tool, context, database=database, query=query, **more)


async def test_rows_are_shown_with_their_columns(made: ToolContext) -> None:
    result = await ask(made, "SELECT * FROM users ORDER BY id")
    assert result.status is CallStatus.OK
    assert result.text.splitlines() == [
        "id | name | photo | score",
        "1 | Ada | x'00ff' | 1.5",
        "2 | Bo\\nb | NULL | NULL",
        "3 | Ünal | NULL | 3.0",
        "[3 rows]",
    ]
    assert (await ask(made, "SELECT 1 AS x WHERE 0")).text == "x\n[0 rows]"


async def test_parameters_are_bound(made: ToolContext) -> None:
    result = await ask(made, "SELECT name, ? FROM users WHERE id = ?", parameters=["'; --", 1])
    assert result.text.splitlines()[1] == "Ada | '; --"
    wrong = await ask(made, "SELECT ?")
    assert wrong.status is CallStatus.ERROR
    assert "number of bindings" in wrong.text


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM users",
        "UPDATE users SET name = 'x'",
        "CREATE TABLE t (a)",
        "DROP TABLE users",
        "PRAGMA user_version = 7",
        "INSERT INTO users VALUES (9, 'x', NULL, NULL)",
    ],
)
async def test_by_default_nothing_is_changed(made: ToolContext, query: str) -> None:
    sandbox = made.sandbox
    assert sandbox is not None
    before = await sandbox.read("data.db")
    result = await ask(made, query)
    assert result.status is CallStatus.ERROR
    assert "readonly database" in result.text
    assert await sandbox.read("data.db") == before
    assert [entry.name for entry in await sandbox.list()] == ["data.db"]


async def test_reading_makes_no_file_beside(made: ToolContext) -> None:
    for query in ("ATTACH DATABASE 'file:other.db?mode=rwc' AS other", "VACUUM INTO 'other.db'"):
        result = await ask(made, query)
        assert (result.status, result.text) == (CallStatus.ERROR, READ_ONLY)
    result = await ask(made, "SELECT 1", database="absent.db")
    assert (result.status, result.text) == (CallStatus.ERROR, 'Error: there is no file or folder "absent.db".')
    assert made.sandbox is not None
    assert [entry.name for entry in await made.sandbox.list()] == ["data.db"]


async def test_one_that_may_write_writes_and_makes_databases(made: ToolContext) -> None:
    changed = await ask(made, "UPDATE users SET score = 0 WHERE id < 3", WRITING)
    assert changed.text == "[done: 2 rows changed]"
    assert (await ask(made, "SELECT sum(score) FROM users")).text.splitlines()[1] == "3.0"
    assert (await ask(made, "CREATE TABLE t (a)", WRITING, database="new.db")).text.startswith("[done")
    assert (await ask(made, "SELECT * FROM t", database="new.db")).text == "a\n[0 rows]"


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT nme FROM users", "no such column: nme\nline 1, column 8:\n  SELECT nme FROM users\n         ^"),
        ("SELECT 'nme',\n\tnme FROM users", "no such column: nme\nline 2, column 2:\n   nme FROM users\n   ^"),
        ("SELECT u.nme FROM users u", "no such column: u.nme\nline 1, column 8:"),
        ("SELECT * FROM user", "no such table: user\nline 1, column 15:"),
        ("SELECT * -- user\nFROM user", "no such table: user\nline 2, column 6:"),
        ("SELECT FROM FROM users", 'near "FROM": syntax error\nline 1, column 8:'),
        ("SELECT id FROM users FROM", 'near "FROM": syntax error\nline 1, column 22:'),
        ("SELECT len(name) FROM users", "no such function: len\nline 1, column 8:"),
        ("SELECT count( FROM users", 'near "FROM": syntax error\nline 1, column 15:'),
        ("SELECT (1", "incomplete input\nline 1, column 10:"),
        ("SELECT 'abc", 'unrecognized token: "\'abc"\nline 1, column 8:'),
        ("SELECT max(id, name, 1) OVER () FROM users", "max"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
    ],
)
async def test_errors_point_at_their_place(made: ToolContext, query: str, says: str) -> None:
    result = await ask(made, query)
    assert result.status is CallStatus.ERROR
    assert says in result.text


async def test_a_long_line_is_shown_around_its_error(made: ToolContext) -> None:
    result = await ask(made, f"SELECT {'1, ' * 500}nme FROM users")
    line, caret = result.text.splitlines()[-2:]
    assert len(line) < 250
    assert line[caret.index("^") :].startswith("nme FROM")


@pytest.mark.parametrize(
    ("query", "name", "at"),
    [("a 'a' A", "a", 0), ("'a' /* a */ -- a\n a", "a", 18), ("ab a", "a", 3), ("t.a", "x.a", 2), ("b", "a", None)],
)
def test_names_are_found_outside_of_strings_and_comments(query: str, name: str, at: int | None) -> None:
    assert occurrence(query, name) == at


async def test_rows_and_bytes_are_capped(made: ToolContext) -> None:
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    result = await ask(made, many, max_rows=3)
    assert result.text == "i\n1\n2\n3\n[more than 3 rows: narrow the query, or use LIMIT and OFFSET]"
    wide = await ask(made, f"SELECT hex(zeroblob(100)) FROM ({many} LIMIT 900)", max_rows=1_000)
    assert wide.status is CallStatus.OK
    assert "there are more: the rest does not fit" in wide.text
    assert len(wide.text.encode()) <= made.output_cap_bytes
    value = await ask(made, "SELECT hex(zeroblob(1000000)), zeroblob(100000)")
    assert "0... (2,000,000 characters) | x'00" in value.text
    assert value.text.endswith("... (100,000 bytes)\n[1 row]")


async def test_values_beyond_all_bounds_are_an_error(made: ToolContext) -> None:
    result = await ask(made, "SELECT zeroblob(1000000000)")
    assert result.status is CallStatus.ERROR


async def test_the_time_limit_is_a_result(made: ToolContext) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    result = await ask(made, endless, timeout_s=0.5)
    assert result.status is CallStatus.TIMEOUT
    assert "0.5 s" in result.text


async def test_what_is_no_database_is_told(made: ToolContext) -> None:
    sandbox = made.sandbox
    assert sandbox is not None
    await sandbox.write("notes.txt", b"hello there, this is text")
    for database, says in [
        ("notes.txt", "is no SQLite or DuckDB database"),
        ("../data.db", "not allowed"),
        ("/etc/passwd", "not allowed"),
        (".", "is a folder"),
    ]:
        result = await ask(made, "SELECT 1", database=database)
        assert result.status is CallStatus.ERROR
        assert says in result.text
    await sandbox.write("broken.db", b"SQLite format 3\0" + b"x" * 200)
    result = await ask(made, "SELECT * FROM t", database="broken.db")
    assert result.status is CallStatus.ERROR


async def test_names_of_files_are_no_part_of_an_address(made: ToolContext) -> None:
    sandbox = made.sandbox
    assert sandbox is not None
    await sandbox.write("a?mode=rwc&x#1%41.db", await sandbox.read("data.db"))
    result = await ask(made, "SELECT count(*) FROM users", database="a?mode=rwc&x#1%41.db")
    assert result.text.splitlines()[1] == "3"


async def test_files_of_the_workspace_cannot_break_it(made: ToolContext) -> None:
    assert made.sandbox is not None
    for name in ("json", "sqlite3", "duckdb"):
        await made.sandbox.write(f"{name}.py", b"raise RuntimeError('poison')")
    assert (await ask(made, "SELECT 1 AS one")).text == "one\n1\n[1 row]"


async def test_without_python_or_sandbox_it_is_a_fault(made: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentenv_tools.sql._PROGRAM", "no-such-python")
    with pytest.raises(ToolFault, match="no working no-such-python"):
        await ask(made, "SELECT 1")
    with pytest.raises(ToolFault, match="'sql' needs a sandbox"):
        await ask(make_context(), "SELECT 1")
    assert made.sandbox is not None
    await made.sandbox.aclose()
    with pytest.raises(SandboxFault):
        await ask(made, "SELECT 1")


async def test_reads_of_one_turn_run_at_once_and_keep_their_order(made: ToolContext) -> None:
    assert (sql.parallel, WRITING.parallel) == (True, False)
    calls = calls_of(*(("sql", {"database": "data.db", "query": f"SELECT {n}"}) for n in range(4)))
    results = await Toolbox([sql]).run(calls, context=made, deadline=NO_DEADLINE, refuse_after=None)
    assert [result.text.splitlines()[1] for result in results] == ["0", "1", "2", "3"]


def test_whether_it_may_write_is_in_its_description_and_hash() -> None:
    assert "only read" in sql.spec.description
    assert "may change the database" in WRITING.spec.description
    assert sql.sha256 != WRITING.sha256


# DuckDB: the Python of the tests has the module, that of the sandboxes has not. So a sandbox in memory runs the tests'.


def with_own_python(invocation: Invocation) -> Scripted:
    """Run what was asked for with the interpreter of the tests, over the files of the fake."""
    with tempfile.TemporaryDirectory() as folder:
        for path, content in invocation.files.items():
            (Path(folder) / path).write_bytes(content)
        argv = [sys.executable, *invocation.argv[1:]]
        done = subprocess.run(argv, cwd=folder, input=invocation.stdin, capture_output=True, check=False)
        invocation.files.clear()
        invocation.files.update({path.name: path.read_bytes() for path in Path(folder).iterdir()})
    return Scripted(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


@pytest.fixture
async def ducks(tmp_path: Path) -> AsyncIterator[ToolContext]:
    path = tmp_path / "data.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE t AS SELECT i AS n, i * 2 AS m FROM range(5) r(i)")
    async with InMemoryProvider(commands=with_own_python) as provider:
        spec = SandboxSpec(files={"data.duckdb": path.read_bytes(), "a.csv": b"x\n1\n"})
        async with await provider.lease(spec, Deadline.after(30, "lease")) as sandbox:
            context = make_context(sandbox, cap=4_000)
            async with context.resources:
                yield context


async def test_duckdb_files_are_read(ducks: ToolContext) -> None:
    result = await ask(ducks, "SELECT n, m FROM t WHERE n > ? ORDER BY n", database="data.duckdb", parameters=[2])
    assert result.text == "n | m\n3 | 6\n4 | 8\n[2 rows]"


@pytest.mark.parametrize(
    "query",
    ["DELETE FROM t", "CREATE TABLE u (a INT)", "COPY t TO 'out.csv'", "SELECT * FROM 'a.csv'", "ATTACH 'b.db'"],
)
async def test_duckdb_files_are_only_read_and_no_other_file_is_touched(ducks: ToolContext, query: str) -> None:
    result = await ask(ducks, query, database="data.duckdb")
    assert result.status is CallStatus.ERROR
    assert ducks.sandbox is not None
    assert [entry.name for entry in await ducks.sandbox.list()] == ["a.csv", "data.duckdb"]


async def test_duckdb_says_itself_where_an_error_is(ducks: ToolContext) -> None:
    result = await ask(ducks, "SELECT nn FROM t", database="data.duckdb")
    assert result.status is CallStatus.ERROR
    assert "LINE 1: SELECT nn FROM t\n" in result.text
    assert result.text.endswith("               ^^")


async def test_duckdb_files_are_written_where_that_is_allowed(ducks: ToolContext) -> None:
    result = await ask(ducks, "CREATE TABLE t (a INT)", WRITING, database="new.duckdb")
    assert result.status is CallStatus.OK
    await ask(ducks, "INSERT INTO t VALUES (1), (2)", WRITING, database="new.duckdb")
    assert (await ask(ducks, "SELECT sum(a) AS s FROM t", database="new.duckdb")).text == "s\n3\n[1 row]"


async def test_without_the_module_it_is_unavailable_and_says_what_to_do(made: ToolContext, tmp_path: Path) -> None:
    path = tmp_path / "data.duckdb"
    duckdb.connect(path).close()
    assert made.sandbox is not None
    await made.sandbox.write("data.bin", path.read_bytes())
    result = await ask(made, "SELECT 1", database="data.bin")
    assert result.status is CallStatus.UNAVAILABLE
    assert "the Python of the sandbox has no module duckdb" in result.text
    assert "pip install duckdb" in result.text
