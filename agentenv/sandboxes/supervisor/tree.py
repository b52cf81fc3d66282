"""A walk over everything in the workspace: to read it, to measure it, to remove it.

It goes down and up with one descriptor, so depth costs none, and paths longer than the kernel takes are walked all the
same. Links are neither followed nor kept. Processes may be at work meanwhile: a folder that is moved away under the
walk ends the walk of that branch.
"""

# Descriptors and bytes are what this works on; pathlib would cost the start milliseconds.
# ruff: noqa: PTH101, PTH208

from __future__ import annotations

import os
import stat

from agentenv.sandboxes.supervisor.workspace import Reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _Level:
    """One folder on the way down."""

    __slots__ = ("about", "lifted", "name", "waiting")

    def __init__(self, *, name: bytes, about: os.stat_result, waiting: list[bytes], lifted: int) -> None:
        self.name = name
        self.about = about
        self.waiting = waiting
        """Names still to be visited, the next one last."""
        self.lifted = lifted
        """The mode to give back when leaving; -1 where it was not changed."""


class Tree:
    """One walk, of one kind. The receiver of `files` closes each reading, and the tree at the end."""

    __slots__ = ("_device", "_fd", "_levels", "_root")

    def __init__(self, root: int) -> None:
        self._root = root
        self._fd = os.open(b".", _FOLDER, dir_fd=root)
        about = os.fstat(self._fd)
        self._device = about.st_dev
        self._levels = [_Level(name=b"", about=about, waiting=self._names(), lifted=-1)]

    def close(self) -> None:
        """Close; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def files(self) -> Generator[tuple[bytes, Reading]]:
        """Give (path, reading) of every regular file once.

        Raises:
            OSError: A file or folder cannot be read even by its owner.
        """
        for name, about in self._walk():
            if stat.S_ISREG(about.st_mode):
                path = b"/".join([*(above.name for above in self._levels[1:]), name])
                try:
                    reading = self._reading(name, about)
                except FileNotFoundError:
                    continue  # removed meanwhile
                yield path, reading

    def sizes(self) -> Generator[int]:
        """Give the bytes that each entry takes up.

        Raises:
            OSError: A folder cannot be read even by its owner.
        """
        for _, about in self._walk():
            yield about.st_blocks * 512

    def remove(self) -> Generator[None]:
        """Remove everything, one entry at a time.

        Raises:
            OSError: Something cannot be removed even by its owner, or a process made something meanwhile.
        """
        for name, about in self._walk():
            try:
                if stat.S_ISDIR(about.st_mode):
                    os.rmdir(name, dir_fd=self._fd)
                else:
                    os.unlink(name, dir_fd=self._fd)
            except FileNotFoundError:
                pass  # removed meanwhile
            yield

    def _walk(self) -> Generator[tuple[bytes, os.stat_result]]:
        """Give (name, about) of every entry, seen from the folder at hand: a folder after all that is in it."""
        while self._levels:
            level = self._levels[-1]
            if not level.waiting:
                self._leave()
                if self._levels:
                    yield level.name, level.about
                continue
            name = level.waiting.pop()
            try:
                about = os.lstat(name, dir_fd=self._fd)
                if stat.S_ISDIR(about.st_mode) and about.st_dev == self._device:
                    self._enter(name, about)
                    continue
            except FileNotFoundError:
                continue  # removed since its folder was read
            yield name, about

    def _names(self) -> list[bytes]:
        return sorted(map(os.fsencode, os.listdir(self._fd)), reverse=True)

    def _enter(self, name: bytes, about: os.stat_result) -> None:
        mode = stat.S_IMODE(about.st_mode)
        closed = mode & stat.S_IRWXU != stat.S_IRWXU
        if closed:
            os.chmod(name, mode | stat.S_IRWXU, dir_fd=self._fd)
        self._move(os.open(name, _FOLDER, dir_fd=self._fd))
        self._levels.append(_Level(name=name, about=about, waiting=self._names(), lifted=mode if closed else -1))

    def _leave(self) -> None:
        level = self._levels.pop()
        if not self._levels:
            return
        above = os.open(b"..", _FOLDER, dir_fd=self._fd)
        if level.lifted >= 0:
            os.chmod(self._fd, level.lifted)
        self._move(above)
        if os.fstat(above).st_ino != self._levels[-1].about.st_ino:
            self._find_back()

    def _find_back(self) -> None:
        """Go down again from the root, as far as the folders are where they were."""
        self._move(os.open(b".", _FOLDER, dir_fd=self._root))
        for depth, level in enumerate(self._levels[1:], start=1):
            try:
                self._move(os.open(level.name, _FOLDER, dir_fd=self._fd))
            except OSError:
                del self._levels[depth:]
                return

    def _move(self, fd: int) -> None:
        os.close(self._fd)
        self._fd = fd

    def _reading(self, name: bytes, about: os.stat_result) -> Reading:
        try:
            return Reading(os.open(name, _FILE, dir_fd=self._fd), about.st_size)
        except PermissionError:
            if about.st_uid != os.getuid():
                raise
        os.chmod(name, stat.S_IMODE(about.st_mode) | stat.S_IRUSR, dir_fd=self._fd)
        fd = os.open(name, _FILE, dir_fd=self._fd)
        os.chmod(fd, stat.S_IMODE(about.st_mode))
        return Reading(fd, about.st_size)
