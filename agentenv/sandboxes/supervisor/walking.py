"""Opening beneath a folder without ``openat2(2)``: on kernels that lack it, as gVisor's.

Every folder on the way is opened by its name in the one before, never through a link; links are read and followed here,
and ``..`` goes back to the folder that was opened before. So no rename or swapped link leads out: a folder that is open
stays what it is, and commands have nowhere to move one to but within the same file system.
"""

from __future__ import annotations

import errno
import os
import stat

_MOST_LINKS = 40
"""As the kernel's own limit."""


def walk_beneath(folder: int, path: bytes, flags: int, mode: int) -> int:
    """Open ``path`` as `agentenv.sandboxes.supervisor.kernel.open_beneath` does, following a link at its end.

    Raises:
        OSError: As there; ``EXDEV`` where the path leads out.
    """
    if not path:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    walk = _Walk(folder)
    try:
        return walk.open(path, flags, mode)
    finally:
        walk.close()


class _Walk:
    """Folders from the first one down to where the walk is, each open."""

    __slots__ = ("_device", "_links", "_opened")

    def __init__(self, folder: int) -> None:
        self._device = os.fstat(folder).st_dev
        self._links = 0
        self._opened = [os.dup(folder)]

    def close(self) -> None:
        for fd in self._opened:
            os.close(fd)

    def open(self, path: bytes, flags: int, mode: int) -> int:
        flags |= _folder_only(path)
        names = self._names(path)
        while names:
            name = names.pop()
            if name == b"..":
                if len(self._opened) == 1:
                    raise _out()
                os.close(self._opened.pop())
            elif self._is_link(name):
                target = self._target(name)
                flags |= 0 if names else _folder_only(target)
                names += self._names(target)
            elif not names:
                return self._kept(os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=self._opened[-1]))
            else:
                self._opened.append(self._enter(name))
        return self._kept(os.open(b".", flags | os.O_CLOEXEC, mode, dir_fd=self._opened[-1]))

    @staticmethod
    def _names(path: bytes) -> list[bytes]:
        """Split a path, the first name last."""
        if path.startswith(b"/"):
            raise _out()
        return [name for name in reversed(path.split(b"/")) if name not in {b"", b"."}]

    def _is_link(self, name: bytes) -> bool:
        try:
            return stat.S_ISLNK(os.stat(name, dir_fd=self._opened[-1], follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False  # it may be about to be made

    def _target(self, name: bytes) -> bytes:
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return os.readlink(name, dir_fd=self._opened[-1])

    def _enter(self, name: bytes) -> int:
        how = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return self._kept(os.open(name, how, dir_fd=self._opened[-1]))

    def _kept(self, fd: int) -> int:
        if os.fstat(fd).st_dev != self._device:
            os.close(fd)
            raise _out()
        return fd


def _folder_only(path: bytes) -> int:
    """Give the flag that a path's end stands for."""
    return os.O_DIRECTORY if path.endswith((b"/", b"/.")) else 0


def _out() -> OSError:
    return OSError(errno.EXDEV, "the path leads out of the workspace")
