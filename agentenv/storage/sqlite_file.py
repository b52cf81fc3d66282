"""One journal file: its layout, how it is opened, and whose fault it is when SQLite refuses.

Layout (version 1): ``attempts`` names the attempts, ``facts`` holds their facts in the order of commit, ``sessions``
says when a writer opened the file. There is no index: facts are only ever appended, readers go through them once,
and an index would cost more than everything else at every commit (12 of 24 microseconds at eight facts a commit).
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from agentenv.errors import AgentEnvError, DamagedJournal, HarnessFault, NewerSchema, ended
from agentenv.storage.write_ahead_log import require_whole_log

APPLICATION_ID = 0x61656A6C
"""``PRAGMA application_id`` of a journal: "aejl"."""
LAYOUT_VERSION = 1
"""``PRAGMA user_version``: of the tables. The facts in them carry a schema version of their own."""

_LOG_INDEX_BYTES = 32 << 10
"""The least that lies beside a file that is open (``-shm``)."""
_SMALLEST_BYTES = 512
"""Of an SQLite file. SQLite takes anything shorter for an empty one and would write over it."""

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY,
    episode_id NOT NULL,         -- text; a blob (UTF-8, surrogates passed) where it holds lone surrogates
    attempt INTEGER NOT NULL,
    UNIQUE (episode_id, attempt)
);
CREATE TABLE facts (
    id INTEGER PRIMARY KEY,
    attempt_id INTEGER NOT NULL,
    at REAL NOT NULL,            -- seconds since 1970, of the commit
    crc INTEGER NOT NULL,        -- CRC-32 of the body
    body BLOB NOT NULL
);
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    opened_at REAL NOT NULL,
    last_fact INTEGER NOT NULL   -- id of the last fact before this session
);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {LAYOUT_VERSION};
COMMIT;
"""


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open a journal for writing, making it if it is new.

    Raises:
        DamagedJournal, NewerSchema: It exists and is not one of ours.
        HarnessFault: It cannot be opened or made.
    """
    require_whole_log(path)
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise failure(error, path, "open the journal") from error
    try:
        connection.execute("PRAGMA busy_timeout = 2000")
        if not is_journal(connection, path):
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.executescript(_SCHEMA)
    except sqlite3.Error as error:
        connection.close()
        raise failure(error, path, "open the journal") from error
    except AgentEnvError:
        connection.close()
        raise
    return connection


def connect_reader(path: Path) -> sqlite3.Connection | None:
    """Open a journal for reading, while a writer may live. None: its writer died before anything was in it.

    Raises:
        DamagedJournal, NewerSchema: It is not one of ours.
        HarnessFault: It cannot be opened.
    """
    try:
        connection = _connect_read_only(path)
    except sqlite3.Error as error:
        raise read_failure(error, path) from error
    try:
        if is_journal(connection, path):
            return connection
    except AgentEnvError:
        connection.close()
        raise
    except sqlite3.Error as error:
        connection.close()
        raise read_failure(error, path) from error
    connection.close()
    require_whole_log(path)
    return None


def _connect_read_only(path: Path) -> sqlite3.Connection:
    """Open read-only; on a read-only medium without the files of a live writer, as immutable."""
    uri = f"file:{quote(str(path))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True)
    try:
        connection.execute("PRAGMA busy_timeout = 10000")
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if os.access(path.parent, os.W_OK) or path.with_name(path.name + "-wal").exists():
            raise
        return sqlite3.connect(f"{uri}&immutable=1", uri=True)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def is_journal(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the tables are there; False for an empty file.

    Raises:
        DamagedJournal: Something else is in the file.
        NewerSchema: Its layout is newer than this package.
    """
    application = _pragma(connection, "application_id")
    layout = _pragma(connection, "user_version")
    if application == 0 and layout == 0 and not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
        if 0 < path.stat().st_size < _SMALLEST_BYTES:
            raise DamagedJournal(f"{path} is no journal: {path.stat().st_size} bytes of something else.")
        return False
    if application != APPLICATION_ID:
        raise DamagedJournal(f"{path} is an SQLite file of something else, no journal of agentenv.")
    if layout > LAYOUT_VERSION:
        raise NewerSchema(
            f"{path} has layout version {layout}, this package reads up to {LAYOUT_VERSION}. Upgrade agentenv."
        )
    return True


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def failure(error: Exception, path: Path, doing: str) -> AgentEnvError:
    """Say whose fault an error of SQLite is when writing: a damaged file, a full disk, or a disk that gave way."""
    return _damage(error, path) or HarnessFault.permanent(
        f"Cannot {doing} {path}: {ended(error)} {describe_space(path.parent)} Nothing of this write was kept; what was "
        f"acknowledged before is safe. {'Free space' if _is_full(error, path) else 'Repair the folder'} and resume the "
        "run."
    )


def read_failure(error: Exception, path: Path) -> AgentEnvError:
    """Say whose fault an error of SQLite is when reading."""
    if _is_full(error, path):
        remedy = "Reading takes 32 KiB beside the file: free space, or read a copy of the run."
    elif not os.access(path.parent, os.W_OK):
        remedy = "Where nothing may be written, only a run that was closed can be read: read a copy of the run."
    else:
        remedy = "Repair the folder, or read a copy of the run."
    return _damage(error, path) or HarnessFault.permanent(
        f"Cannot read the journal {path}: {ended(error)} {describe_space(path.parent)} {remedy}"
    )


def _damage(error: Exception, path: Path) -> DamagedJournal | None:
    if _code(error) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return None
    return DamagedJournal(
        f"{path} is damaged ({error}). Restore it from a copy, or save what is left with `sqlite3 FILE .recover`."
    )


def _is_full(error: Exception, path: Path) -> bool:
    """Whether it is for want of space; SQLite calls it an I/O error where the index of the log finds none."""
    if _code(error) != sqlite3.SQLITE_IOERR:
        return _code(error) == sqlite3.SQLITE_FULL
    free = _free_bytes(path.parent)
    return free is not None and free < _LOG_INDEX_BYTES


def _code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _free_bytes(folder: Path) -> int | None:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize


def describe_space(folder: Path) -> str:
    """Say how much room a folder has, for the message of a failed write."""
    try:
        disk = os.statvfs(folder)
    except OSError as error:
        return f"The folder {folder} cannot be looked at: {error.strerror}."
    return f"The folder {folder} has {disk.f_bavail * disk.f_frsize:,} bytes free."
