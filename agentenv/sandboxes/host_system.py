"""What sandboxes without an image of their own see of this machine: its programs, read-only, and little else."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

from agentenv.errors import SandboxFault

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
"""``PATH`` of commands."""

UNPRIVILEGED_UID = 10001
"""User of the sandboxes of a harness that is root: a bare number; no account is needed."""

LANDLOCK_UID, UNCONFINED_UID = 10002, 10003
"""Of the weak kinds, each its own: their commands see the machine's processes, and a user may signal and trace those of
its own, also through a wall that these cannot look over themselves."""

_INTERPRETERS = ("/usr/bin/python3", "/usr/local/bin/python3")
"""Below ``/usr``, which is what a sandbox sees of the host; readable for every user, unlike one in a home folder."""
_BESIDE_USR = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


def interpreter() -> str:
    """Give the Python that runs supervisors.

    Raises:
        SandboxFault: There is none; permanent.
    """
    for path in _INTERPRETERS:
        if os.access(path, os.X_OK):
            return path
    raise SandboxFault.permanent(
        f"no Python for the sandbox: neither {' nor '.join(_INTERPRETERS)} exists. Remedy: apt-get install python3"
    )


@cache
def system_links() -> tuple[tuple[str, str], ...]:
    """Give (path, target) of what beside ``/usr`` is a link into it."""
    return tuple((path, str(Path(path).readlink())) for path in _BESIDE_USR if Path(path).is_symlink())


@cache
def system_folders() -> tuple[str, ...]:
    """Give the folders of programs and libraries: ``/usr``, and on older systems more."""
    return ("/usr", *(path for path in _BESIDE_USR if Path(path).is_dir() and not Path(path).is_symlink()))


@cache
def system_settings() -> tuple[str, ...]:
    """Give what programs need of ``/etc``, as far as it is there."""
    return tuple(path for path in ("/etc/ld.so.cache", "/etc/alternatives") if Path(path).exists())


def account_files(uid: int) -> dict[str, bytes]:
    """Make the files of ``/etc`` that say who is who: path to content."""
    return {
        "/etc/passwd": f"root:x:0:0::/:/bin/sh\nsandbox:x:{uid}:{uid}::/tmp:/bin/sh\n".encode(),
        "/etc/group": f"root:x:0:\nsandbox:x:{uid}:\n".encode(),
        "/etc/hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
    }


@cache
def system_name() -> str:
    """Name the system whose programs they are, for the manifest."""
    try:
        return "/usr of " + platform.freedesktop_os_release().get("PRETTY_NAME", "an unnamed system")
    except OSError:
        return "/usr of an unnamed system"
