"""The journal's reader: every writer's file of a run, read-only, whether or not a writer lives."""

from __future__ import annotations

import sqlite3
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from agentenv.core.store import AttemptKey, FactReader
from agentenv.errors import DamagedJournal
from agentenv.records.codec import decode_fact
from agentenv.records.facts import Fact
from agentenv.storage.sqlite_file import connect_reader, read_failure
from agentenv.storage.write_ahead_log import require_whole_log


class _File:
    """One writer's file, with the ids of each attempt's facts in order."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._names: dict[int, AttemptKey] = {}
        self._rows: dict[AttemptKey, array[int]] = {}
        self._seen = 0

    def rows(self) -> dict[AttemptKey, array[int]]:
        """Give the ids of facts by attempt, those committed up to now."""
        try:
            for fact_id, attempt_id in self._connection.execute(
                "SELECT id, attempt_id FROM facts WHERE id > ? ORDER BY id", (self._seen,)
            ):
                self._rows.setdefault(self._key(attempt_id), array("q")).append(fact_id)
                self._seen = fact_id
        except sqlite3.Error as error:
            raise read_failure(error, self.path) from error
        return self._rows

    def _key(self, attempt_id: int) -> AttemptKey:
        key = self._names.get(attempt_id)
        if key is None:
            row = self._connection.execute(
                "SELECT episode_id, attempt FROM attempts WHERE id = ?", (attempt_id,)
            ).fetchone()
            if row is None:
                raise DamagedJournal(f"{self.path} has facts of attempt {attempt_id}, which it does not name.")
            name = row[0].decode("utf-8", "surrogatepass") if isinstance(row[0], bytes) else row[0]
            key = self._names[attempt_id] = AttemptKey(name, row[1])
        return key

    def fact(self, fact_id: int) -> Fact:
        """Read one fact and check its sum."""
        where = f"{self.path}, fact {fact_id}"
        try:
            row = self._connection.execute("SELECT crc, body FROM facts WHERE id = ?", (fact_id,)).fetchone()
        except sqlite3.Error as error:
            raise read_failure(error, self.path) from error
        if row is None:
            raise DamagedJournal(f"{where} is gone: a journal only grows.")
        crc, body = row
        if not isinstance(body, bytes) or zlib.crc32(body) != crc:
            raise DamagedJournal(f"{where}: its bytes are not those that were written (CRC-32 differs).")
        return decode_fact(body, where=where)

    def sessions(self) -> list[tuple[float, float]]:
        """(opened, last fact) of every session that wrote facts, in seconds since 1970."""
        try:
            starts = self._connection.execute("SELECT opened_at, last_fact FROM sessions ORDER BY id").fetchall()
            ends = [first for _, first in starts[1:]] + [self._last_id()]
            return [(opened, self._at(end)) for (opened, before), end in zip(starts, ends, strict=True) if end > before]
        except sqlite3.Error as error:
            raise read_failure(error, self.path) from error

    def _last_id(self) -> int:
        return int(self._connection.execute("SELECT coalesce(max(id), 0) FROM facts").fetchone()[0])

    def _at(self, fact_id: int) -> float:
        return float(self._connection.execute("SELECT at FROM facts WHERE id = ?", (fact_id,)).fetchone()[0])

    def check(self) -> None:
        """See that nothing lies behind the end of its log, and let SQLite check its structure."""
        require_whole_log(self.path)
        try:
            verdict = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.Error as error:
            raise read_failure(error, self.path) from error
        if verdict != "ok":
            raise DamagedJournal(f"{self.path} is damaged: {verdict}.")

    def close(self) -> None:
        self._connection.close()


class JournalReader(FactReader):
    """Reads every ``*.sqlite`` of a folder. For one thread; closed by its owner."""

    def __init__(self, folder: Path) -> None:
        """Open what is there; files that writers make later are found too.

        Raises:
            DamagedJournal, NewerSchema: A file cannot be read.
        """
        self._folder = folder
        self._files: dict[Path, _File] = {}
        try:
            self._open_new()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every file. May be called twice."""
        for file in self._files.values():
            file.close()

    def attempts(self) -> list[AttemptKey]:
        """List every attempt with a fact, ordered.

        Raises:
            DamagedJournal, NewerSchema: A file cannot be read, or two writers claim one attempt.
        """
        return sorted(self._where())

    def facts(self, key: AttemptKey) -> list[Fact]:
        """Give the facts of one attempt in order.

        Raises:
            KeyError: No such attempt.
            DamagedJournal, NewerSchema: A fact cannot be read.
        """
        for file in self._files.values():
            if (ids := file.rows().get(key)) is not None:
                return [file.fact(fact_id) for fact_id in ids]
        file, ids = self._where()[key]
        return [file.fact(fact_id) for fact_id in ids]

    def last_facts(self) -> Iterator[tuple[AttemptKey, Fact]]:
        """Give the last fact of every attempt, ordered by key.

        Raises:
            DamagedJournal, NewerSchema: A fact cannot be read.
        """
        for key, (file, ids) in sorted(self._where().items(), key=lambda item: item[0]):
            yield key, file.fact(ids[-1])

    def wall_clock_s(self) -> float:
        """Seconds in which at least one writer was at work, from opening its journal to its last fact."""
        spans = sorted(span for file in self._files.values() for span in file.sessions())
        total, reach = 0.0, float("-inf")
        for start, end in spans:
            total += max(0.0, end - max(start, reach))
            reach = max(reach, end)
        return total

    def check(self) -> None:
        """Check the structure of every file, and every fact.

        Raises:
            DamagedJournal, NewerSchema: Something cannot be read, with its place.
        """
        for file in self._files.values():
            file.check()
        for key in self.attempts():
            self.facts(key)

    def _open_new(self) -> None:
        for path in sorted(self._folder.glob("*.sqlite")):
            if path not in self._files and (connection := connect_reader(path)) is not None:
                self._files[path] = _File(path, connection)

    def _where(self) -> dict[AttemptKey, tuple[_File, array[int]]]:
        self._open_new()
        found: dict[AttemptKey, tuple[_File, array[int]]] = {}
        for file in self._files.values():
            for key, ids in file.rows().items():
                if key in found:
                    raise DamagedJournal(f"{found[key][0].path} and {file.path} both hold {key}: one writer each.")
                found[key] = (file, ids)
        return found
