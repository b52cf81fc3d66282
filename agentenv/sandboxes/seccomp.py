"""The system-call filter of a sandbox, as classic BPF built here: no libseccomp is needed.

A list of what is refused, not of what is allowed: commands are ordinary programs. Refused is what reaches other
processes' memory, mounts and namespaces, loads code into the kernel, changes clock or host, talks to keyrings, or has
been a way out of containers before (io_uring, userfaultfd, bpf, perf); and sockets other than local, IP and netlink
ones, since a virtual machine's own host answers on ``AF_VSOCK``, which no network namespace cuts off.

Source: seccomp(2), ``linux/filter.h``, and the system-call tables ``asm/unistd_64.h`` (x86_64) and
``asm-generic/unistd.h`` (aarch64). The x86_64 filter is tested; the aarch64 one is only checked for its form.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agentenv.errors import SandboxFault

_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32_BIT = 0x40000000

_NEW_NAMESPACES = 0x10000000 | 0x00020000 | 0x40000000 | 0x20000000 | 0x08000000 | 0x04000000 | 0x02000000
"""CLONE_NEWUSER, NS, NET, PID, IPC, UTS, CGROUP."""
_SOCKETS = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""
_TERMINAL_INJECTION = (0x5412, 0x541C)
"""TIOCSTI, TIOCLINUX."""

# Name: (number on x86_64, number on aarch64); None where the architecture has no such call.
_REFUSED: Mapping[str, tuple[int | None, int | None]] = MappingProxyType(
    {
        "ptrace": (101, 117),
        "process_vm_readv": (310, 270),
        "process_vm_writev": (311, 271),
        "process_madvise": (440, 440),
        "pidfd_getfd": (438, 438),
        "kcmp": (312, 272),
        "kexec_load": (246, 104),
        "kexec_file_load": (320, 294),
        "init_module": (175, 105),
        "finit_module": (313, 273),
        "delete_module": (176, 106),
        "mount": (165, 40),
        "umount2": (166, 39),
        "pivot_root": (155, 41),
        "chroot": (161, 51),
        "move_mount": (429, 429),
        "open_tree": (428, 428),
        "fsopen": (430, 430),
        "fsconfig": (431, 431),
        "fsmount": (432, 432),
        "fspick": (433, 433),
        "mount_setattr": (442, 442),
        "setns": (308, 268),
        "unshare": (272, 97),
        "open_by_handle_at": (304, 265),
        "name_to_handle_at": (303, 264),
        "swapon": (167, 224),
        "swapoff": (168, 225),
        "reboot": (169, 142),
        "sethostname": (170, 161),
        "setdomainname": (171, 162),
        "iopl": (172, None),
        "ioperm": (173, None),
        "modify_ldt": (154, None),
        "uselib": (134, None),
        "add_key": (248, 217),
        "request_key": (249, 218),
        "keyctl": (250, 219),
        "bpf": (321, 280),
        "perf_event_open": (298, 241),
        "userfaultfd": (323, 282),
        "io_uring_setup": (425, 425),
        "io_uring_enter": (426, 426),
        "io_uring_register": (427, 427),
        "fanotify_init": (300, 262),
        "lookup_dcookie": (212, 18),
        "settimeofday": (164, 170),
        "clock_settime": (227, 112),
        "clock_adjtime": (305, 266),
        "adjtimex": (159, 171),
        "acct": (163, 89),
        "quotactl": (179, 60),
        "quotactl_fd": (443, 443),
        "syslog": (103, 116),
        "vhangup": (153, 58),
        "personality": (135, 92),
        "mbind": (237, 235),
        "set_mempolicy": (238, 237),
        "move_pages": (279, 239),
        "migrate_pages": (256, 238),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Architecture:
    """Numbers of one architecture."""

    audit: int
    column: int
    clone: int
    clone3: int
    socket: int
    ioctl: int


_ARCHITECTURES: Mapping[str, _Architecture] = MappingProxyType(
    {
        "x86_64": _Architecture(audit=0xC000003E, column=0, clone=56, clone3=435, socket=41, ioctl=16),
        "aarch64": _Architecture(audit=0xC00000B7, column=1, clone=220, clone3=435, socket=198, ioctl=29),
    }
)


def build_filter(machine: str, *, sockets: bool = True) -> bytes:
    """Build the filter, in the form ``bwrap --seccomp`` and ``seccomp(2)`` take.

    Args:
        machine: As ``platform.machine()`` says.
        sockets: Whether sockets can be made at all. Without a network namespace, none must be: local ones reach the
            services of the host as well. Pairs of connected ones are left.

    Raises:
        SandboxFault: The architecture has no table here; permanent.
    """
    about = _ARCHITECTURES.get(machine)
    if about is None:
        raise SandboxFault.permanent(
            f"no system-call filter for the architecture {machine!r}; known: {', '.join(_ARCHITECTURES)}."
        )
    program = [
        _statement(_LOAD, _ARCHITECTURE_AT),
        _jump(_JUMP_EQ, about.audit, yes=1, no=0),
        _statement(_RETURN, _KILL_PROCESS),
        _statement(_LOAD, _NUMBER_AT),
    ]
    if machine == "x86_64":
        program += [_jump(_JUMP_GE, _X32_BIT, yes=0, no=1), _refuse(errno.ENOSYS)]
    for numbers in _REFUSED.values():
        number = numbers[about.column]
        if number is not None:
            program += [_jump(_JUMP_EQ, number, yes=0, no=1), _refuse(errno.EPERM)]
    # Its flags lie in memory, where a filter cannot look; libraries fall back to clone.
    program += [_jump(_JUMP_EQ, about.clone3, yes=0, no=1), _refuse(errno.ENOSYS)]
    program += _on_argument(about.clone, 0, [_jump(_JUMP_SET, _NEW_NAMESPACES, yes=0, no=1), _refuse(errno.EPERM)])
    program += _on_argument(
        about.ioctl,
        1,
        [step for code in _TERMINAL_INJECTION for step in (_jump(_JUMP_EQ, code, yes=0, no=1), _refuse(errno.EPERM))],
    )
    families = _SOCKETS if sockets else ()
    program += _on_argument(
        about.socket,
        0,
        [
            *(_jump(_JUMP_EQ, family, yes=len(families) - at, no=0) for at, family in enumerate(families)),
            _refuse(errno.EAFNOSUPPORT),
        ],
    )
    program.append(_statement(_RETURN, _ALLOW))
    return b"".join(program)


def _on_argument(number: int, argument: int, steps: list[bytes]) -> list[bytes]:
    """Run ``steps`` on the low half of one argument of one system call; they return, or fall through."""
    return [
        _jump(_JUMP_EQ, number, yes=0, no=len(steps) + 2),
        _statement(_LOAD, _ARGUMENTS_AT + 8 * argument),
        *steps,
        _statement(_LOAD, _NUMBER_AT),
    ]


def _statement(code: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, 0, 0, value)


def _jump(code: int, value: int, *, yes: int, no: int) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _refuse(number: int) -> bytes:
    return _statement(_RETURN, _ERRNO | number)
