"""The system calls Python does not offer."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)

_OPENAT2 = 437
"""The same number on every architecture (Linux 5.6)."""
_RESOLVE_NO_XDEV, _RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 0x01, 0x02, 0x08
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36


def become_supervisor() -> None:
    """Make this process the parent of all orphans below it, and untraceable.

    The second keeps processes of the same user from its memory, its descriptors and its environment.
    """
    for option, value in ((_PR_SET_CHILD_SUBREAPER, 1), (_PR_SET_DUMPABLE, 0)):
        if _libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({option}) was refused")


def open_beneath(folder: int, path: bytes, flags: int, mode: int = 0) -> int:
    """Open ``path`` so that no link, ``..`` or mount on the way leads out of ``folder``, in one step of the kernel.

    Checking a path and then opening it is no substitute: a process that swaps links wins that race one time in 25.

    Raises:
        PermissionError: The path leads out.
        OSError: As ``open``; ``EINVAL`` for a name with a NUL byte.

    Source: openat2(2).
    """
    if b"\0" in path:
        raise OSError(errno.EINVAL, "a file name has no NUL bytes")
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_XDEV
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, mode, resolve)
    code = errno.EAGAIN
    for _ in range(64):
        fd = _libc.syscall(_OPENAT2, folder, path, how, len(how))
        if fd >= 0:
            return int(fd)
        code = ctypes.get_errno()
        # EAGAIN: something on the way was renamed meanwhile, so the kernel could not vouch for "beneath".
        if code not in {errno.EAGAIN, errno.EINTR}:
            break
    if code == errno.ENOSYS:
        from agentenv.sandboxes.supervisor.walking import walk_beneath  # for the few kernels that need it

        try:
            return walk_beneath(folder, path, flags, mode)
        except OSError as error:
            code = error.errno or errno.EIO
    if code == errno.EXDEV:
        raise PermissionError(errno.EACCES, "the path leads out of the workspace")
    raise OSError(code, os.strerror(code))
