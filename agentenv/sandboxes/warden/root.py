"""The file system of a sandbox in namespaces: a small read-only root, built in memory.

What can be written: ``/workspace``, ``/tmp`` and ``/dev/shm``, each of a size of its own.
"""

# Bytes are what this works on; pathlib would cost the start milliseconds.
# ruff: noqa: PTH102, PTH211

from __future__ import annotations

import errno
import os

from agentenv.sandboxes.warden import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentenv.sandboxes.warden.settings import Settings

_BASE = b"/tmp"
"""Where the new root is put together, before it takes the old one's place."""
_ROOT_BYTES = 1 << 20
_DEVICES = (b"null", b"zero", b"full", b"random", b"urandom", b"tty")
_DEVICE_LINKS = (
    (b"/proc/self/fd", b"fd"),
    (b"/proc/self/fd/0", b"stdin"),
    (b"/proc/self/fd/1", b"stdout"),
    (b"/proc/self/fd/2", b"stderr"),
    (b"pts/ptmx", b"ptmx"),
)
_INERT = kernel.NO_SETUID | kernel.NO_DEVICES
_INODES_ELSEWHERE = 20_000
"""In ``/tmp`` and again in ``/dev/shm``: each costs memory even when it is empty."""


def enter(settings: Settings) -> None:
    """Build the root and go into it; the working folder is then the workspace.

    Raises:
        OSError: The kernel refuses.
    """
    kernel.detach_from_host_mounts()
    folder = settings["workspace"]
    # Opened first: it may lie below where the new root is put together.
    workspace = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if folder else -1
    kernel.mount(b"tmpfs", _BASE, _INERT, b"size=%d,mode=0755" % _ROOT_BYTES)
    os.chdir(_BASE)
    for name in (b"etc", b"proc", b"run", b"dev", b"dev/pts", b"dev/shm", b"tmp", b"var", b"workspace"):
        os.mkdir(name)
    os.symlink(b"/tmp", b"var/tmp")
    _system(settings)
    _files(settings["files"])
    kernel.mount(b"proc", b"proc", _INERT | kernel.NO_PROGRAMS, b"")
    _devices(settings["shared_memory_bytes"])
    _tmpfs(b"tmp", settings["tmp_bytes"], _INODES_ELSEWHERE, 0o1777)
    if workspace >= 0:
        kernel.bind(b"/proc/self/fd/%d" % workspace, b"workspace", _INERT)
        os.close(workspace)
    else:
        _tmpfs(b"workspace", settings["workspace_bytes"], settings["workspace_files"], 0o700)
    kernel.swap_root()
    kernel.restrict(b"/", _INERT | kernel.READ_ONLY)
    os.chdir(b"/workspace")


def _system(settings: Settings) -> None:
    """Show the host's programs and libraries."""
    for link, target in settings["system_links"]:
        os.symlink(target, link.lstrip(b"/"))
    for path in settings["system_paths"]:
        # A copy of each name, for the mount to cover.
        place = path.lstrip(b"/")
        if os.path.isdir(path):  # noqa: PTH112
            os.makedirs(place, exist_ok=True)  # noqa: PTH103
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o444))
        kernel.bind(path, place, _INERT | kernel.READ_ONLY)


def _files(files: Mapping[bytes, bytes]) -> None:
    for path, content in files.items():
        fd = os.open(path.lstrip(b"/"), os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o444)
        try:
            if os.write(fd, content) != len(content):
                raise OSError(errno.ENOSPC, f"write {path.decode()}: {os.strerror(errno.ENOSPC)}")
        finally:
            os.close(fd)


def _devices(shared_memory_bytes: int) -> None:
    for name in _DEVICES:
        os.close(os.open(b"dev/" + name, os.O_CREAT | os.O_WRONLY, 0o666))
        kernel.bind(b"/dev/" + name, b"dev/" + name, kernel.NO_SETUID | kernel.NO_PROGRAMS)
    for target, name in _DEVICE_LINKS:
        os.symlink(target, b"dev/" + name)
    kernel.mount(b"devpts", b"dev/pts", kernel.NO_SETUID | kernel.NO_PROGRAMS, b"newinstance,ptmxmode=0666,mode=0620")
    _tmpfs(b"dev/shm", shared_memory_bytes, _INODES_ELSEWHERE, 0o1777)


def _tmpfs(target: bytes, size: int, inodes: int, mode: int) -> None:
    kernel.mount(b"tmpfs", target, _INERT, b"size=%d,nr_inodes=%d,mode=%o" % (size, inodes, mode))
