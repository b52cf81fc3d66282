"""Removing a tree that nobody promises anything about: thousands of levels deep, closed to its owner, of any names.

Deep trees are flattened: a folder's folders are moved up beside it before it is removed, so that neither recursion nor
the number of open descriptors nor the length of a path grows with depth. Links are removed, never followed.
"""

# Descriptors are what this works on.
# ruff: noqa: PTH101

from __future__ import annotations

import os
import stat
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
    moved = 0
    while folders := _unlink_files(root):
        for name in folders:
            inner = _open(name, root)
            try:
                for child in _unlink_files(inner):
                    os.close(_open(child, inner))  # a folder is moved only by who may write to it: its ".." changes
                    moved += 1
                    os.rename(child, _fresh(root, moved), src_dir_fd=inner, dst_dir_fd=root)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=root)


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


def _fresh(root: int, number: int) -> str:
    """Give a name the root does not have."""
    name = f"moved-{number}"
    while True:
        try:
            os.lstat(name, dir_fd=root)
        except FileNotFoundError:
            return name
        name += "-"


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
