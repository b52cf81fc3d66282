"""The system calls that confine a process, which Python does not offer. Each raises ``OSError`` that names itself."""

from __future__ import annotations

import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
# The same numbers on every architecture.
_MOUNT_SETATTR, _LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 442, 444, 445, 446

NEW_NAMESPACES = 0x10000000 | 0x00020000 | 0x40000000 | 0x20000000 | 0x08000000 | 0x04000000 | 0x02000000
"""CLONE_NEWUSER, NS, NET, PID, IPC, UTS, CGROUP."""

READ_ONLY, NO_SETUID, NO_DEVICES, NO_PROGRAMS = 1, 2, 4, 8
"""Of mounts: the same bits in ``mount(2)`` and ``mount_setattr(2)``."""
_BIND, _RECURSIVE, _PRIVATE = 4096, 16384, 1 << 18
_AT_RECURSIVE, _AT_FDCWD = 0x8000, -100
_DETACH = 2

_SET_DUMPABLE, _SET_SECCOMP, _DROP_BOUND, _SET_SUBREAPER, _SET_NO_NEW_PRIVILEGES, _AMBIENT = 4, 22, 24, 36, 38, 47
_SECCOMP_FILTER, _CLEAR_AMBIENT = 2, 4
_CAPABILITIES_V3 = 0x20080522


def unshare(flags: int) -> None:
    """Go into new namespaces."""
    _check("unshare", _libc.unshare(ctypes.c_int(flags)))


def mount(kind: bytes, target: bytes, flags: int, options: bytes) -> None:
    """Mount a new file system of a kind."""
    place = f"mount {kind.decode()} on {target.decode()}"
    _check(place, _libc.mount(kind, target, kind, ctypes.c_ulong(flags), options))


def bind(source: bytes, target: bytes, attributes: int) -> None:
    """Show a file or folder, with all that is mounted below it, at another place, with more restrictions.

    They are set in one step for all of it; a remount by ``mount(2)`` would spare what is mounted below.
    """
    place = f"bind {source.decode()} to {target.decode()}"
    _check(place, _libc.mount(source, target, None, ctypes.c_ulong(_BIND | _RECURSIVE), None))
    restrict(target, attributes, recursive=True)


def restrict(target: bytes, attributes: int, *, recursive: bool = False) -> None:
    """Add restrictions to a mount (Linux 5.12)."""
    wanted = struct.pack("QQQQ", attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    _syscall(f"mount_setattr {target.decode()}", _MOUNT_SETATTR, _AT_FDCWD, target, flags, wanted, len(wanted))


def detach_from_host_mounts() -> None:
    """Let no mount from here on reach the host, nor one of the host's reach in."""
    _check("make mounts private", _libc.mount(None, b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None))


def swap_root() -> None:
    """Make the working folder, which is a mount, the root, and let go of the old one."""
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(0, f"pivot_root: no number known for {os.uname().machine}")
    _syscall("pivot_root", number, b".", b".")
    _check("unmount the old root", _libc.umount2(b".", _DETACH))
    os.chdir("/")


def become_subreaper() -> None:
    """Be the parent of every orphan below."""
    _prctl("PR_SET_CHILD_SUBREAPER", _SET_SUBREAPER, 1)


def set_dumpable(value: bool) -> None:
    """Let processes of the same user look into this one, and itself write its own maps of users; or not."""
    _prctl("PR_SET_DUMPABLE", _SET_DUMPABLE, int(value))


def forbid_new_privileges() -> None:
    """Make set-user-id files ordinary ones, for good and for all children."""
    _prctl("PR_SET_NO_NEW_PRIVS", _SET_NO_NEW_PRIVILEGES, 1)


def forget_arguments() -> None:
    """Wipe the command line, which every process can read, from this process's memory."""
    with open("/proc/self/stat", "rb") as about:  # noqa: PTH123 - pathlib costs the start milliseconds
        # After the program's name in brackets: arg_start and arg_end are fields 48 and 49 of all, see proc(5).
        fields = about.read().rpartition(b")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    if begin:
        ctypes.memset(begin, 0, end - begin)


def drop_capabilities() -> None:
    """Give up every capability, and the right to ever get one."""
    number = 0
    while _libc.prctl(_DROP_BOUND, ctypes.c_ulong(number), 0, 0, 0) == 0:
        number += 1
    if number == 0:
        raise OSError(ctypes.get_errno(), "drop the bounding set of capabilities")
    _prctl("PR_CAP_AMBIENT", _AMBIENT, _CLEAR_AMBIENT)
    _check("capset", _libc.capset(struct.pack("Ii", _CAPABILITIES_V3, 0), bytes(24)))


def filter_system_calls(program: bytes) -> None:
    """Put a filter (classic BPF) on this process and its children, for good."""
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP" if struct.calcsize("P") == 8 else "HxxP", len(program) // 8, ctypes.addressof(code))
    _prctl("PR_SET_SECCOMP", _SET_SECCOMP, _SECCOMP_FILTER, head)


def landlock_version() -> int:
    """Say how much of Landlock the kernel has; 0: none, or switched off."""
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def landlock_ruleset(attributes: bytes) -> int:
    """Make a set of rules; gives its descriptor."""
    return _syscall("landlock_create_ruleset", _LANDLOCK_CREATE, attributes, len(attributes), 0)


def landlock_allow(ruleset: int, folder: int, access: int) -> None:
    """Allow an access to what is beneath an open file or folder."""
    _syscall("landlock_add_rule", _LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", access, folder), 0)


def landlock_restrict(ruleset: int) -> None:
    """Put the rules on this process and its children, for good."""
    _syscall("landlock_restrict_self", _LANDLOCK_RESTRICT, ruleset, 0)


def _prctl(what: str, option: int, value: int, pointer: bytes | None = None) -> None:
    _check(what, _libc.prctl(option, ctypes.c_ulong(value), pointer, None, None))


def _syscall(what: str, number: int, *arguments: int | bytes) -> int:
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return _check(what, int(_libc.syscall(ctypes.c_long(number), *given)))


def _check(what: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result
