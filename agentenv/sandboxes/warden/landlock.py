"""Rules about files that the kernel keeps for a process and its children, and that need no privilege to make.

Source: landlock(7), ``linux/landlock.h``. Kernels know the first rights, later ones more; what a kernel does not know
it does not restrict, and `landlock_version` of `agentenv.sandboxes.warden.kernel` says how much that is.
"""

# Descriptors are what this works on; pathlib would cost the start milliseconds.
# ruff: noqa: PTH112

from __future__ import annotations

import os
import struct

from agentenv.sandboxes.warden import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 13, 1 << 14, 1 << 15
_FIRST = (1 << 13) - 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP = 3
"""Binding and connecting."""
_SCOPES = 3
"""Abstract sockets and signals stay among the restricted."""


def restrict(
    *, readable: Sequence[bytes], writable: Sequence[bytes], devices: Sequence[bytes], network: bool = True
) -> int:
    """Allow this process and its children nothing but this, for good; give Landlock's version (0: nothing was done).

    Args:
        readable: To be read and executed, with all below. What does not exist is left out.
        writable: To be read, executed and changed, with all below; no device can be made.
        devices: To be opened for reading and writing, with all below.
        network: Whether TCP stays allowed; it can be forbidden from version 4 on.

    Raises:
        OSError: The kernel refuses.
    """
    version = kernel.landlock_version()
    if version == 0:
        return 0
    handled = _FIRST
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        if version >= since:
            handled |= right
    ruleset = kernel.landlock_ruleset(_attributes(version, handled, network=network))
    try:
        for paths, access in (
            (readable, _EXECUTE | _READ_FILE | _READ_DIR),
            (writable, handled & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)),
            (devices, handled & (_READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV)),
        ):
            for path in paths:
                _allow(ruleset, path, access)
        kernel.landlock_restrict(ruleset)
    finally:
        os.close(ruleset)
    return version


def _attributes(version: int, handled: int, *, network: bool) -> bytes:
    """Build the description of the set, which has grown with the versions."""
    fields = [handled]
    if version >= 4:
        fields.append(0 if network else _TCP)
    if version >= 6:
        fields.append(_SCOPES)
    return struct.pack(f"{len(fields)}Q", *fields)


def _allow(ruleset: int, path: bytes, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        kernel.landlock_allow(ruleset, fd, access if os.path.isdir(path) else access & _OF_FILES)
    finally:
        os.close(fd)
