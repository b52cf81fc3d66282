"""The folder of a run: its layout, its lock, and the rules for making, opening and resuming one.

::

    RUN/manifest.json          what was used to make the run
    RUN/journal/WRITER.sqlite  the facts, one file per writer
    RUN/blobs/ab/abcd…         long outputs and workspace snapshots, by content hash
    RUN/lock                   who collects here now; held with flock, so that it dies with its owner
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentenv.errors import AgentEnvError, ConfigError, HarnessFault, OrderError, RunInUse
from agentenv.storage.blobs import FolderBlobs
from agentenv.storage.journal import Durability, Journal
from agentenv.storage.manifest import read_manifest, require_same, write_manifest
from agentenv.storage.reader import JournalReader
from agentenv.storage.sqlite_file import describe_space

_MANIFEST = "manifest.json"
_LOCK = "lock"
_JOURNAL = "journal"
_BLOBS = "blobs"


class RunFolder:
    """One run on disk. `create` and `resume` hold its lock until `close`; `open` only reads."""

    def __init__(self, path: Path, manifest: Mapping[str, Any], *, lock: int | None, durability: Durability) -> None:
        self.path = path
        self.manifest = manifest
        """As stored: after `resume`, the one the run was made with."""
        self._lock = lock
        self._durability: Durability = durability

    @classmethod
    def create(cls, path: Path, manifest: Mapping[str, Any], *, durability: Durability = "process") -> RunFolder:
        """Make a run in a new or empty folder.

        Raises:
            ConfigError: The folder holds a run, or anything else.
            RunInUse: Another live process is making a run there.
            HarnessFault: The folder cannot be written.
        """
        _refuse_foreign(path)
        lock = _locked(path)
        try:
            _refuse_run(path)
            _write(path, manifest)
            return cls(path, manifest, lock=lock, durability=durability)
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def resume(cls, path: Path, manifest: Mapping[str, Any], *, durability: Durability = "process") -> RunFolder:
        """Open a run to finish it. A folder whose run died before its manifest was written is begun anew.

        Raises:
            ConfigError: There is no run, or it was made with other settings: shows each key with both values.
            RunInUse: Another live process writes there. A dead one's lock is taken over.
            DamagedJournal, NewerSchema: Its manifest cannot be read.
            HarnessFault: The folder cannot be written.
        """
        if not path.is_dir():
            raise ConfigError(f"There is no run in {path}; collect without --resume to make one.")
        _refuse_foreign(path)
        lock = _locked(path)
        try:
            if not (path / _MANIFEST).exists():
                _write(path, manifest)
            stored = read_manifest(path / _MANIFEST)
            require_same(stored, manifest, where=path)
            return cls(path, stored, lock=lock, durability=durability)
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open a run to read it, whether or not it is being written.

        Raises:
            ConfigError: There is no run.
            DamagedJournal, NewerSchema: Its manifest cannot be read.
        """
        try:
            manifest = read_manifest(path / _MANIFEST)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ConfigError(f"There is no run in {path}: it has no {_MANIFEST}.") from error
        return cls(path, manifest, lock=None, durability="process")

    def journal(self, writer: str = "main", *, max_bytes: int | None = None) -> Journal:
        """Open the journal of one writer.

        Raises:
            OrderError: The folder was opened to read.
            DamagedJournal, NewerSchema, HarnessFault: As `Journal.open`.
        """
        if self._lock is None:
            raise OrderError(f"{self.path} was opened to read; create or resume the run to write.")
        path = self.path / _JOURNAL / f"{writer}.sqlite"
        return Journal.open(path, durability=self._durability, max_bytes=max_bytes)

    def reader(self) -> JournalReader:
        """Open every writer's journal to read; closed by the caller.

        Raises:
            DamagedJournal, NewerSchema: A file cannot be read.
        """
        return JournalReader(self.path / _JOURNAL)

    @property
    def blobs(self) -> FolderBlobs:
        """Long outputs and snapshots, to write and to read."""
        return FolderBlobs(self.path / _BLOBS, durability=self._durability)

    def close(self) -> None:
        """Give up the lock. May be called twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _refuse_foreign(path: Path) -> None:
    """Refuse a folder with anything in it that no run has."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is a file; a run needs a folder.")
    if not path.exists() or (path / _MANIFEST).exists():
        return
    strange = sorted({entry.name for entry in path.iterdir()} - {_LOCK, _JOURNAL, _BLOBS, _MANIFEST})  # made just now
    foreign = [name for name in strange if not name.startswith(f".{_MANIFEST}.")]
    if foreign:
        raise ConfigError(
            f"{path} is not empty and holds no run (it has {foreign[0]!r}). Choose another folder (--out FOLDER)."
        )


def _refuse_run(path: Path) -> None:
    if (path / _MANIFEST).exists():
        raise ConfigError(f"{path} holds a run already. Resume it (--resume), or choose another folder (--out FOLDER).")


def _write(path: Path, manifest: Mapping[str, Any]) -> None:
    try:
        (path / _JOURNAL).mkdir(exist_ok=True)
        (path / _BLOBS).mkdir(exist_ok=True)
        write_manifest(path / _MANIFEST, manifest)
    except OSError as error:
        raise _unwritable(path, error) from error


def _locked(path: Path) -> int:
    """Take the lock, and write who holds it.

    The lock is advisory and belongs to the open file: it ends with its owner, however that dies.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        owner = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "boot_id": _boot_id()}).encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, owner, 0)
    except BlockingIOError as error:
        in_use = _in_use(path, descriptor)
        os.close(descriptor)
        raise in_use from error
    except OSError as error:
        os.close(descriptor)
        raise _unwritable(path, error) from error
    return descriptor


def _in_use(path: Path, descriptor: int) -> RunInUse:
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        who = f"process {owner['pid']} on {owner['host']} (boot {owner['boot_id']})"
    except (ValueError, KeyError, TypeError, OSError):
        who = "another process"
    return RunInUse(f"{path} is being written by {who}. Wait for it, stop it, or choose another folder.")


def _boot_id() -> str:
    """Identify this start of the machine: a process id means nothing after the next one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _unwritable(path: Path, error: OSError) -> AgentEnvError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "Free space and resume the run" if full else "Make it writable, or choose another folder"
    return HarnessFault.permanent(
        f"Cannot write the run folder {path}: {error.strerror}. {describe_space(path)} {remedy} "
        f"({'--resume' if full else '--out FOLDER'})."
    )
