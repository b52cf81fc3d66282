"""Blobs of a run: a folder of files named by the SHA-256 of their content.

A blob is written beside its place and renamed into it, so a file under a hash is whole from the moment it exists. With
durability ``process`` it survives ``kill -9`` from then on; with ``power`` file and folder are also forced to the disk.
What a crash leaves in ``tmp`` is never read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from agentenv.core.blobs import BlobSink, BlobSource, BlobWriter
from agentenv.errors import DamagedJournal, HarnessFault, OrderError
from agentenv.records.messages import Spill
from agentenv.storage.journal import Durability
from agentenv.storage.sqlite_file import describe_space


class FolderBlobs(BlobSink, BlobSource):
    """Content-addressed files under one folder. May be used from several threads."""

    def __init__(self, folder: Path, *, durability: Durability = "process") -> None:
        self.folder = folder
        self._sync = durability == "power"

    def open(self) -> FileBlobWriter:
        """Begin a blob of unknown length.

        Raises:
            HarnessFault: The folder cannot be written.
        """
        return FileBlobWriter(self.folder, sync=self._sync)

    def put(self, content: bytes) -> Spill:
        """Store one at once; what is there already is not written again.

        Raises:
            HarnessFault: The disk is full or gone; nothing is left under the hash.
        """
        spill = Spill(sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))
        if path_of(self.folder, spill.sha256).exists():
            return spill
        writer = self.open()
        try:
            writer.write(content)
            return writer.commit()
        finally:
            writer.discard()

    def get(self, sha256: str) -> bytes:
        """Read one and check its hash.

        Raises:
            DamagedJournal: It is missing, or its content has another hash.
        """
        path = path_of(self.folder, sha256)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DamagedJournal(
                f"The blob {sha256} cannot be read from {path}: {error.strerror}. Restore it from a copy of the run."
            ) from error
        actual = hashlib.sha256(content).hexdigest()
        if actual != sha256:
            raise DamagedJournal(f"The blob at {path} has SHA-256 {actual}: it was changed after it was written.")
        return content


class FileBlobWriter(BlobWriter):
    """One blob on its way: a file in ``tmp``, hashed as it grows."""

    def __init__(self, folder: Path, *, sync: bool) -> None:
        self._folder = folder
        self._sync = sync
        self._hash = hashlib.sha256()
        self._size = 0
        try:
            (folder / "tmp").mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=folder / "tmp")
        except OSError as error:
            raise self._fault(error) from error
        self._file = os.fdopen(descriptor, "wb", buffering=1 << 16)
        self._path = Path(name)

    def write(self, chunk: bytes) -> None:
        """Append.

        Raises:
            HarnessFault: The disk is full or gone.
            OrderError: The blob is committed or discarded.
        """
        if self._file.closed:
            raise OrderError("The blob is committed or discarded; open another one.")
        self._hash.update(chunk)
        self._size += len(chunk)
        try:
            self._file.write(chunk)
        except OSError as error:
            raise self._fault(error) from error

    def commit(self) -> Spill:
        """Make the blob durable under its hash.

        Raises:
            HarnessFault: The disk is full or gone; nothing is left under the hash.
            OrderError: The blob is committed or discarded.
        """
        if self._file.closed:
            raise OrderError("The blob is committed or discarded; open another one.")
        spill = Spill(sha256=self._hash.hexdigest(), size_bytes=self._size)
        target = path_of(self._folder, spill.sha256)
        try:
            self._file.flush()
            if self._sync:
                os.fsync(self._file.fileno())
            self._file.close()
            target.parent.mkdir(exist_ok=True)
            self._path.replace(target)
            if self._sync:
                sync_folder(target.parent)
                sync_folder(self._folder)
        except OSError as error:
            raise self._fault(error) from error
        return spill

    def discard(self) -> None:
        """Throw away what was written; nothing happens after `commit`."""
        with contextlib.suppress(OSError):  # a full disk fails the last flush too
            self._file.close()
        self._path.unlink(missing_ok=True)

    def _fault(self, error: OSError) -> HarnessFault:
        fault = HarnessFault(
            f"Cannot write a blob of {self._size:,} bytes: {error.strerror}. {describe_space(self._folder)} "
            "Free space and resume the run."
        )
        fault.retryable = False
        return fault


def path_of(folder: Path, sha256: str) -> Path:
    """Where the blob of a hash lies: 256 folders by its first two digits.

    Raises:
        DamagedJournal: It is no SHA-256.
    """
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise DamagedJournal(f"{sha256!r} is no SHA-256 of a blob.")
    return folder / sha256[:2] / sha256


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
