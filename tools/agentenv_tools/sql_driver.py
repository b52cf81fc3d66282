"""The program that runs one SQL statement inside the sandbox. Standard library alone; not imported here.

One JSON object on stdin: ``{"database", "engine", "query", "parameters", "writable", "max_rows", "max_bytes"}``, one on
stdout: ``{"columns", "rows", "more", "changed", "error", "at", "missing"}``. Cells are rendered here, so that a
value of a gigabyte is never sent. ``more`` is ``rows`` or ``bytes`` where a limit was met; ``at`` is the offset in the
query, in characters, at which the error lies; ``missing`` is the module this Python lacks.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import sys
import urllib.parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CELL_CHARS = 500
BLOB_BYTES = 32
VALUE_BYTES = 64 << 20
"""Largest single value that SQLite may make."""
ERROR_CHARS = 2_000
DENIED = ("not authorized", "authorization denied")
"""What SQLite says where `judged` refuses."""
NAMED = re.compile(
    r"(?:no such (?:column|table|function|collation sequence|index|view)|ambiguous column name|"
    r"misuse of aggregate|misuse of window function|wrong number of arguments to function|"
    r"table \S+ has no column named|no such module):? (\S+)"
)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run one statement; errors are part of the answer."""
    answer: dict[str, Any] = {
        "columns": [],
        "rows": [],
        "more": "",
        "changed": -1,
        "error": "",
        "at": None,
        "missing": "",
    }
    try:
        connection = connect(request)
    except ModuleNotFoundError as error:
        return {**answer, "missing": error.name}
    except Exception as error:  # noqa: BLE001 - whatever a database says is for the policy
        return {**answer, "error": said(error)}
    try:
        cursor = connection.execute(request["query"], request["parameters"])
        columns = [str(entry[0])[:CELL_CHARS] for entry in cursor.description or ()]
        answer["columns"] = columns
        if columns:
            answer["rows"], answer["more"] = fetched(cursor, request["max_rows"], request["max_bytes"])
        else:
            answer["changed"] = getattr(cursor, "rowcount", -1)
    except Exception as error:  # noqa: BLE001 - as above
        answer["error"] = said(error)
        if request["engine"] == "sqlite":
            with contextlib.suppress(sqlite3.Error):
                answer["at"] = located(connection, request["query"], str(error))
    return answer


def connect(request: dict[str, Any]) -> Any:
    """Open the database, for reading alone unless told otherwise."""
    if request["engine"] == "duckdb":
        import duckdb

        # Without external access, COPY cannot write files beside a database that is opened for reading.
        return duckdb.connect(
            request["database"], read_only=not request["writable"], config={"enable_external_access": "false"}
        )
    mode = "rwc" if request["writable"] else "ro"
    path = urllib.parse.quote(request["database"].encode("utf-8", "surrogateescape"))
    connection = sqlite3.connect(f"file:{path}?mode={mode}", uri=True, isolation_level=None)
    if hasattr(connection, "setlimit"):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
    connection.text_factory = as_text
    if not request["writable"]:
        connection.set_authorizer(judged)
    return connection


def judged(action: int, *_of: object) -> int:
    """Refuse what would open another file: it could be opened for writing, or made (VACUUM INTO attaches, too)."""
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK


def as_text(data: bytes) -> str:
    """Decode what a database calls text."""
    return data.decode("utf-8", "backslashreplace")


def fetched(cursor: Any, max_rows: int, max_bytes: int) -> tuple[list[list[str]], str]:
    """Give rows as text, and which limit ended them."""
    rows: list[list[str]] = []
    room = max_bytes
    while (row := cursor.fetchone()) is not None:
        if len(rows) == max_rows:
            return rows, "rows"
        shown = [cell(value) for value in row]
        room -= len(json.dumps(shown))
        if room < 0:
            return rows, "bytes"
        rows.append(shown)
    return rows, ""


def cell(value: Any) -> str:
    """Show one value on one line."""
    if value is None:
        return "NULL"
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        rest = "" if len(data) <= BLOB_BYTES else f"... ({len(data):,} bytes)"
        return f"x'{data[:BLOB_BYTES].hex()}'{rest}"
    text = str(value)
    rest = "" if len(text) <= CELL_CHARS else f"... ({len(text):,} characters)"
    return text[:CELL_CHARS].replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") + rest


def said(error: BaseException) -> str:
    """Give an exception's text, or its name where it has none."""
    text = str(error)
    if text in DENIED:
        return "no other file can be opened: this database is only read"
    return (text or type(error).__name__)[:ERROR_CHARS]


def located(connection: sqlite3.Connection, query: str, message: str) -> int | None:
    """Find where in the query an error of SQLite's lies: Python's module does not say."""
    if message == "incomplete input":
        return len(query.rstrip())
    near = re.fullmatch(r'near "(.*)": syntax error', message, re.DOTALL)
    if near:
        return first_refused(connection, query, near[1], message)
    token = re.match(r'unrecognized token: "(.*)"', message, re.DOTALL)
    if token:
        at = query.find(token[1])
        return at if at >= 0 else None
    named = NAMED.search(message)
    return occurrence(query, named[1].rstrip("()")) if named else None


def first_refused(connection: sqlite3.Connection, query: str, token: str, message: str) -> int | None:
    """Find the occurrence at which the parser stops: what ends there is refused in the same words."""
    for match in re.finditer(re.escape(token), query):
        try:
            connection.execute("EXPLAIN " + query[: match.end()])
        except sqlite3.Error as error:
            if str(error) == message:
                return match.start()
    return None


def occurrence(query: str, name: str) -> int | None:
    """Find a name outside of strings and comments, whole or without what qualifies it."""
    for wanted in (name, name.rpartition(".")[2]):
        pattern = rf"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/|(?<!\w)({re.escape(wanted)})(?!\w)"
        for match in re.finditer(pattern, query, re.DOTALL | re.IGNORECASE):
            if match[1]:
                return match.start(1)
    return None


if __name__ == "__main__":
    json.dump(run(json.load(sys.stdin)), sys.stdout)
