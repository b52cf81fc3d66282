"""Removing a tree that nobody promises anything about: thousands of levels deep, closed to its owner, of any names.

The walk goes down and up with one descriptor, so that neither recursion nor the number of open descriptors nor the
length of a path grows with depth. Links are removed, never followed.
"""

# Descriptors are what this works on.
# ruff: noqa: PTH101

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path


def remove_tree(path: Path) -> None:
    """Remove ``path`` and all below it. Blocking; nothing if it is not there.

    Raises:
        OSError: Something could not be removed even by its owner (an immutable file, a mount).
    """
    try:
        root = _open(str(path), None)
    except FileNotFoundError:
        return
    try:
        _empty(root)
    finally:
        os.close(root)
    path.rmdir()


def _empty(root: int) -> None:
    here = os.dup(root)
    levels = [_Level(name="", inode=os.fstat(here).st_ino, folders=_unlink_files(here))]
    try:
        while levels:
            if levels[-1].folders:
                name = levels[-1].folders.pop()
                here = _replace(here, _open(name, here))
                levels.append(_Level(name=name, inode=os.fstat(here).st_ino, folders=_unlink_files(here)))
                continue
            emptied = levels.pop()
            if levels:
                here = _replace(here, _open("..", here))
                if os.fstat(here).st_ino != levels[-1].inode:
                    raise OSError(errno.EBUSY, "a folder was moved while its tree was being removed", emptied.name)
                os.rmdir(emptied.name, dir_fd=here)
    finally:
        os.close(here)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """A folder on the way down, and which of its folders are still to be emptied."""

    name: str
    inode: int
    folders: list[str]


def _replace(old: int, new: int) -> int:
    os.close(old)
    return new


def _unlink_files(folder: int) -> list[str]:
    """Remove everything in a folder that is no folder; give the folders."""
    folders: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    return folders


def _open(path: str, folder: int | None) -> int:
    """Open a folder, giving its owner every right to it first."""
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        itself = f"/proc/self/fd/{fd}"
        if os.fstat(fd).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(itself, stat.S_IRWXU)
        return os.open(itself, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(fd)
