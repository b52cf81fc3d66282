"""The journal's writer: one SQLite file per writer, every append committed before it returns.

Appends that wait at the same time share one transaction (group commit). Two kinds of durability:

``process``
    What was acknowledged survives ``kill -9`` of the process at any later moment. A power failure may lose the last
    transactions, never the file (SQLite's ``synchronous=NORMAL``). A commit only writes to the page cache, which
    takes less time than handing it to a thread; so it happens on the loop's thread, once per pass of the loop.
``power``
    What was acknowledged also survives a power failure (``synchronous=FULL``). A commit waits for the disk; so it
    happens in the journal's own thread, and everything that arrives meanwhile is in the next one.

What the write-ahead log holds is folded into the file in the journal's own thread: first beside the commits, then, for
the few pages that came in meanwhile, with commits held back. The loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import math
import sqlite3
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentenv.core.lifetime import cancel_at_next_await, finish
from agentenv.core.store import AttemptKey, FactWriter
from agentenv.errors import AgentEnvError, HarnessFault, OrderError, ended
from agentenv.records.codec import encode_fact
from agentenv.records.facts import EpisodeEnded, Fact
from agentenv.storage.sqlite_file import connect_writer, failure

Durability = Literal["process", "power"]

_FOLD_BYTES = 16 << 20
"""Written since the last time the log was folded, until it is folded again."""
_CLOSE_GRACE_S = 60.0
_LOOK_EVERY_S = 0.25
"""How often a writer sees whether its file is still there."""
_PAGE = 4096


@dataclass(slots=True)
class Append:
    """One call of `Journal.append` on its way to the disk."""

    key: AttemptKey
    bodies: tuple[bytes, ...]
    last: bool
    """Whether the attempt ends with it."""
    written: asyncio.Future[None]
    """Done for the caller. Cancelled with it, and then says nothing of the disk."""
    transaction: asyncio.Future[BaseException | None] | None = None
    """What became of the transaction that the thread was handed it in: None if written, else why nothing of it was.

    No transaction: it was not handed on. The caller's cancellation does not reach it.
    """


class JournalFile:
    """The open file: one transaction at a time, whole or not at all. Not for two threads at once."""

    def __init__(self, path: Path, *, durability: Durability, max_bytes: int | None) -> None:
        self.path = path
        self.unfolded_bytes = 0
        """About as much as the log has grown since it was folded."""
        self._connection = connect_writer(path)
        self._attempts: dict[AttemptKey, int] = {}
        self._place = _place_of(path)
        self._seen_at = 0.0
        try:
            self._configure(durability, max_bytes)
        except sqlite3.Error as error:
            self._connection.close()
            raise failure(error, path, "open the journal") from error

    def _configure(self, durability: Durability, max_bytes: int | None) -> None:
        run = self._connection.execute
        run(f"PRAGMA synchronous = {'FULL' if durability == 'power' else 'NORMAL'}")
        run("PRAGMA wal_autocheckpoint = 0")
        run(f"PRAGMA journal_size_limit = {4 * _FOLD_BYTES}").fetchone()
        if max_bytes is not None:
            run(f"PRAGMA max_page_count = {max(1, max_bytes // _PAGE)}").fetchone()
        run(
            "INSERT INTO sessions (opened_at, last_fact) SELECT ?, coalesce(max(id), 0) FROM facts",
            (time.time(),),
        )

    def commit(self, appends: Sequence[Append]) -> None:
        """Write all of them in one transaction.

        Raises:
            HarnessFault: The disk is full or gone; nothing of them was written. Or the file is gone, with all it had.
            DamagedJournal: The file was damaged under us.
        """
        self._check_place()
        fresh: dict[AttemptKey, int] = {}
        rows: list[tuple[int, float, int, bytes]] = []
        now = time.time()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for append in appends:
                attempt = self._attempts.get(append.key) or fresh.get(append.key)
                if attempt is None:
                    attempt = fresh[append.key] = self._attempt_id(append.key)
                rows.extend((attempt, now, zlib.crc32(body), body) for body in append.bodies)
            self._connection.executemany("INSERT INTO facts (attempt_id, at, crc, body) VALUES (?, ?, ?, ?)", rows)
            self._connection.execute("COMMIT")
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise failure(error, self.path, "write the journal") from error
            raise
        self._attempts |= fresh
        for append in appends:
            if append.last:
                self._attempts.pop(append.key, None)
        self.unfolded_bytes += 2 * _PAGE + sum(len(row[3]) for row in rows)

    def _attempt_id(self, key: AttemptKey) -> int:
        name = _storable(key.episode_id)
        run = self._connection.execute
        run("INSERT OR IGNORE INTO attempts (episode_id, attempt) VALUES (?, ?)", (name, key.attempt))
        found = run("SELECT id FROM attempts WHERE episode_id = ? AND attempt = ?", (name, key.attempt))
        return int(found.fetchone()[0])

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # after some errors SQLite has rolled back by itself
            self._connection.execute("ROLLBACK")

    def _check_place(self, *, at_least_every_s: float = _LOOK_EVERY_S) -> None:
        """See that the file still is where it was opened: SQLite would write on into one that nobody can read.

        Raises:
            HarnessFault: It was removed, or another one is in its place; permanent.
        """
        now = time.monotonic()
        if now < self._seen_at + at_least_every_s:
            return
        self._seen_at = now
        if _place_of(self.path) != self._place:
            raise HarnessFault.permanent(
                f"The journal {self.path} was removed or replaced while it was being written, and what this session "
                "wrote is lost with it. Leave the folders of running collections alone; begin the run anew, or resume "
                "from what is there now."
            )

    def fold(self) -> None:
        """Move what the log holds into the file, beside a writer, over a connection of its own."""
        try:
            connection = sqlite3.connect(self.path, isolation_level=None)
            try:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise failure(error, self.path, "fold the log of the journal") from error

    def close(self) -> None:
        """Fold the log and close. May be called twice.

        Raises:
            HarnessFault: The file is gone, or not the one that was written; it is closed all the same.
        """
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.ProgrammingError:
            return  # closed before
        except sqlite3.Error:
            pass  # the log is as good a place as the file: the next to open it reads both
        self._connection.close()
        self._check_place(at_least_every_s=0.0)


class Journal(FactWriter):
    """Appends facts to one file. Belongs to the event loop it is first used on."""

    def __init__(self, file: JournalFile, *, durability: Durability) -> None:
        self._file = file
        self._in_thread = durability == "power"
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._waiting: list[Append] = []
        self._scheduled = False
        self._held = False
        """Whether commits wait for the thread."""
        self._folding = False
        self._closed = False

    @classmethod
    def open(cls, path: Path, *, durability: Durability = "process", max_bytes: int | None = None) -> Journal:
        """Open the journal of one writer, or make it.

        Args:
            path: ``….sqlite``; its folder is made.
            durability: What an acknowledged fact survives; see the module.
            max_bytes: Size beyond which the file refuses to grow, as if the disk were full. None: the disk decides.

        Raises:
            DamagedJournal, NewerSchema: The file exists and is not one of ours.
            HarnessFault: It cannot be opened or made.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise failure(error, path, "make the folder of the journal") from error
        return cls(JournalFile(path, durability=durability, max_bytes=max_bytes), durability=durability)

    async def append(self, key: AttemptKey, *facts: Fact) -> None:
        """Write facts in order, in one transaction shared with whoever else is waiting.

        Raises:
            HarnessFault: The disk is full or gone; nothing of this call was written.
            asyncio.CancelledError: Nothing of this call was written. If its transaction had begun, it is written to
                its end, and the cancellation comes at the caller's next await.
            UsageError: A fact cannot be encoded.
            OrderError: The journal is closed.
        """
        if self._closed:
            raise OrderError(f"The journal {self._file.path} is closed; nothing can be appended.")
        if not facts:
            return
        loop = asyncio.get_running_loop()
        bodies = tuple([encode_fact(fact) for fact in facts])
        append = Append(key, bodies, isinstance(facts[-1], EpisodeEnded), loop.create_future())
        self._waiting.append(append)
        self._schedule(loop)
        try:
            await append.written
        except asyncio.CancelledError as cancelled:
            if not await self._wrote(append):
                raise
            cancel_at_next_await(cancelled)

    async def _wrote(self, append: Append) -> bool:
        """Say what became of an append whose caller was cancelled.

        One that waits is withdrawn by its cancelled future; one that the thread was handed is waited for.
        """
        if not append.written.cancelled():
            return append.written.exception() is None
        if append.transaction is None:
            return False
        if not append.transaction.done():
            with contextlib.suppress(asyncio.CancelledError):
                await finish(asyncio.wait([append.transaction]), math.inf)
        return append.transaction.result() is None

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not (self._scheduled or self._held):
            self._scheduled = True
            loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Commit what waits. A cancelled append is not there any more."""
        self._scheduled = False
        if self._held:
            return
        batch = [append for append in self._waiting if not append.written.done()]
        self._waiting.clear()
        if not batch:
            return
        if self._in_thread:
            self._held = True
            transaction: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
            for append in batch:
                append.transaction = transaction
            self._call(lambda: self._file.commit(batch), lambda error: self._committed(batch, transaction, error))
            return
        error: BaseException | None = None
        try:
            self._file.commit(batch)
        except Exception as raised:  # noqa: BLE001  # whoever waits must hear of it, whatever it is
            error = raised
        _settle(batch, error)
        self._fold_if_due()

    def _committed(
        self, batch: Sequence[Append], transaction: asyncio.Future[BaseException | None], error: BaseException | None
    ) -> None:
        transaction.set_result(error)
        _settle(batch, error)
        self._release()
        self._fold_if_due()

    def _fold_if_due(self) -> None:
        """Begin to fold the log. A failure only leaves it longer; the next commit says if the disk is full."""
        if self._folding or self._file.unfolded_bytes < _FOLD_BYTES:
            return
        self._folding = True
        self._file.unfolded_bytes = 0
        self._call(self._file.fold, lambda _: self._fold_rest())

    def _fold_rest(self) -> None:
        """Fold what came in meanwhile, with commits held back, so that the log can start over."""
        self._held = True
        self._call(self._file.fold, lambda _: self._folded())

    def _folded(self) -> None:
        self._folding = False
        self._release()

    def _release(self) -> None:
        self._held = False
        if self._waiting:
            self._schedule(asyncio.get_running_loop())

    def _call(self, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        """Do blocking work in the journal's thread, then go on in the loop."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        future.add_done_callback(lambda done: then(done.exception()))

    async def aclose(self) -> None:
        """Write what waits, fold the log, close the file.

        Raises:
            HarnessFault: The file is gone, or another one is in its place.
        """
        if self._closed:
            return
        self._closed = True
        await finish(self._shut(), _CLOSE_GRACE_S)

    async def _shut(self) -> None:
        while self._waiting or self._held or self._folding:
            if not self._held:
                self._flush()
            await asyncio.wrap_future(self._thread.submit(_nothing))  # behind whatever the thread is at
            await asyncio.sleep(0)
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        finally:
            self._thread.shutdown(wait=False)


def _nothing() -> None:
    return


def _settle(batch: Sequence[Append], error: BaseException | None) -> None:
    """Wake everyone whose facts were in a transaction; each gets an exception of its own."""
    for append in batch:
        if append.written.done():
            continue  # cancelled while the thread was writing
        if error is None:
            append.written.set_result(None)
        else:
            append.written.set_exception(_own(error))


def _own(error: BaseException) -> AgentEnvError:
    if isinstance(error, AgentEnvError):
        own = copy.copy(error)
    else:
        own = HarnessFault(f"The journal could not be written: {type(error).__name__}: {ended(error)}")
    own.__cause__ = error
    return own


def _place_of(path: Path) -> tuple[int, int] | None:
    """Tell a file from whatever else may come to lie at its path; None if nothing does."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _storable(episode_id: str) -> str | bytes:
    try:
        episode_id.encode()
    except UnicodeEncodeError:
        return episode_id.encode("utf-8", "surrogatepass")
    return episode_id
