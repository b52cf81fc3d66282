"""Files of the workspace, by paths that cannot leave it."""

# Descriptors and bytes are what this works on; pathlib would cost the start milliseconds.
# ruff: noqa: PTH120, PTH208

from __future__ import annotations

import errno
import os
import stat

from agentenv.sandboxes.supervisor.frames import CHUNK
from agentenv.sandboxes.supervisor.kernel import open_beneath

# A FIFO opened without O_NONBLOCK would hang the supervisor; a terminal without O_NOCTTY would become its own.
_SAFE = os.O_NONBLOCK | os.O_NOCTTY


class Workspace:
    """One folder, held open."""

    __slots__ = ("fd", "file_bytes", "max_files")

    def __init__(self, path: bytes, *, file_bytes: int, max_files: int) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.file_bytes = file_bytes
        """Most bytes one written file may have."""
        self.max_files = max_files
        """Most files, folders and links; 0 where the workspace is a folder on a larger file system."""

    def count(self) -> int:
        """Give the files, folders and links of a workspace that is a file system of its own."""
        about = os.fstatvfs(self.fd)
        return max(0, about.f_files - about.f_ffree - 1)

    def count_bytes(self) -> int:
        """Give the space taken up in such a workspace."""
        about = os.fstatvfs(self.fd)
        return (about.f_blocks - about.f_bfree) * about.f_frsize

    @property
    def overcrowded(self) -> bool:
        """Whether there are more than there may be."""
        return self.max_files > 0 and self.count() > self.max_files

    def folder(self, path: bytes) -> int:
        """Open a folder to change into."""
        return self._open(path, os.O_PATH | os.O_DIRECTORY)

    def unlock(self) -> None:
        """Give the owner every right to the root again: a command that took them must not lock out the next one."""
        mode = stat.S_IMODE(os.fstat(self.fd).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.fchmod(self.fd, mode | stat.S_IRWXU)

    def _open(self, path: bytes, flags: int, mode: int = 0) -> int:
        self.unlock()
        return open_beneath(self.fd, path, flags, mode)

    def read(self, path: bytes, limit: int) -> Reading:
        """Open a regular file, to read at most ``limit`` bytes of it."""
        fd = self._open(path, os.O_RDONLY | _SAFE)
        try:
            _require_regular(fd)
        except OSError:
            os.close(fd)
            raise
        return Reading(fd, limit)

    def listing(self, path: bytes) -> list[tuple[bytes, bytes, int]]:
        """Give (name, kind, bytes) of a folder's entries, sorted by name."""
        fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            found: list[tuple[bytes, bytes, int]] = []
            for name in sorted(map(os.fsencode, os.listdir(fd))):
                try:
                    about = os.lstat(name, dir_fd=fd)
                except FileNotFoundError:
                    continue
                found.append((name, _kind(about.st_mode), about.st_size))
            return found
        finally:
            os.close(fd)

    def create(self, path: bytes) -> Writing:
        """Open a file for writing from its start, with the folders it needs."""
        if self.overcrowded:
            raise OSError(errno.ENOSPC, "the workspace has too many files")
        parent = os.path.dirname(path)
        if parent:
            self._make_folders(parent)
        fd = self._open(path, os.O_WRONLY | os.O_CREAT | _SAFE, 0o644)
        try:
            _require_regular(fd)
            os.ftruncate(fd, 0)
        except OSError:
            os.close(fd)
            raise
        return Writing(fd, self.file_bytes)

    def _make_folders(self, path: bytes) -> None:
        try:
            os.close(self.folder(path))
            return
        except FileNotFoundError:
            pass
        parts = path.split(b"/")
        for depth in range(len(parts)):
            at = self.folder(b"/".join(parts[:depth]) or b".")
            try:
                os.mkdir(parts[depth] or b".", 0o755, dir_fd=at)
            except FileExistsError:
                pass  # where it is no folder, opening what is to lie in it will tell
            finally:
                os.close(at)


class Reading:
    """A file being read in pieces."""

    __slots__ = ("_fd", "_left")

    def __init__(self, fd: int, limit: int) -> None:
        self._fd = fd
        self._left = limit

    def next(self) -> bytes:
        """Give the next piece; empty at the end of the file or of the limit."""
        piece = os.read(self._fd, min(self._left, CHUNK))
        self._left -= len(piece)
        return piece

    def close(self) -> None:
        """Close; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Writing:
    """A file being written in pieces."""

    __slots__ = ("_fd", "_left")

    def __init__(self, fd: int, limit: int) -> None:
        self._fd = fd
        self._left = limit

    def add(self, chunk: bytes) -> None:
        """Append.

        Raises:
            OSError: ``EFBIG`` over the limit; ``ENOSPC`` on a full disk.
        """
        self._left -= len(chunk)
        if self._left < 0:
            raise OSError(errno.EFBIG, "the file would be larger than the sandbox allows")
        view = memoryview(chunk)
        while view:
            view = view[os.write(self._fd, view) :]

    def close(self) -> None:
        """Close; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _require_regular(fd: int) -> None:
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file")


def _kind(mode: int) -> bytes:
    if stat.S_ISREG(mode):
        return b"file"
    if stat.S_ISDIR(mode):
        return b"dir"
    return b"link" if stat.S_ISLNK(mode) else b"other"
