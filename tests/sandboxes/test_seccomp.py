"""The filter, run by a small interpreter of classic BPF: so both architectures are judged, whichever this is."""

from __future__ import annotations

import errno
import struct

import pytest
from agentenv.errors import SandboxFault
from agentenv.sandboxes.seccomp import build_filter

ALLOW, KILL = 0x7FFF0000, 0x80000000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE = {"x86_64": 56, "aarch64": 220}
SOCKET = {"x86_64": 41, "aarch64": 198}
IOCTL = {"x86_64": 16, "aarch64": 29}

# As `strace` and ``linux/unistd.h`` have them, beside the implementation's own table.
REFUSED = {
    "x86_64": {"ptrace": 101, "mount": 165, "unshare": 272, "bpf": 321, "keyctl": 250, "io_uring_setup": 425},
    "aarch64": {"ptrace": 117, "mount": 40, "unshare": 97, "bpf": 280, "keyctl": 219, "io_uring_setup": 425},
}
NEEDED = {
    "x86_64": {"read": 0, "write": 1, "mmap": 9, "execve": 59, "openat": 257, "futex": 202, "getdents64": 217},
    "aarch64": {"read": 63, "write": 64, "mmap": 222, "execve": 221, "openat": 56, "futex": 98, "getdents64": 61},
}  # fmt: skip


def verdict(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the kernel would do with a call. Only what the filter uses is interpreted; anything else fails."""
    data = struct.pack("<IIQ6Q", number, audit or AUDIT[machine], 0, *(arguments + (0,) * 6)[:6])
    program = list(struct.iter_unpack("<HBBI", build_filter(machine)))
    accumulator = position = 0
    while True:
        code, yes, no, value = program[position]
        position += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x06:
            return value
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            position += yes if holds else no


def refusal(number: int) -> int:
    return 0x00050000 | number


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
class TestFilter:
    def test_dangerous_calls_are_refused(self, machine):
        for number in REFUSED[machine].values():
            assert verdict(machine, number) == refusal(errno.EPERM)

    def test_ordinary_calls_pass(self, machine):
        for number in NEEDED[machine].values():
            assert verdict(machine, number) == ALLOW

    def test_threads_and_forks_pass_but_not_namespaces(self, machine):
        thread = 0x003D0F00
        assert verdict(machine, CLONE[machine], thread) == ALLOW
        assert verdict(machine, CLONE[machine], 17) == ALLOW
        for flag in (0x10000000, 0x00020000, 0x40000000, 0x20000000, 0x08000000, 0x04000000, 0x02000000):
            assert verdict(machine, CLONE[machine], flag | 17) == refusal(errno.EPERM)
        assert verdict(machine, 435) == refusal(errno.ENOSYS)

    def test_sockets_are_local_ip_or_netlink(self, machine):
        for family in range(50):
            expected = ALLOW if family in {1, 2, 10, 16} else refusal(errno.EAFNOSUPPORT)
            assert verdict(machine, SOCKET[machine], family, 1) == expected

    def test_terminals_cannot_be_typed_into(self, machine):
        assert verdict(machine, IOCTL[machine], 0, 0x5412) == refusal(errno.EPERM)
        assert verdict(machine, IOCTL[machine], 0, 0x5401) == ALLOW

    def test_other_architectures_are_killed(self, machine):
        """A 32-bit program would have other numbers for the same calls."""
        assert verdict(machine, 1, audit=0x40000003) == KILL

    def test_every_jump_lands_in_the_program(self, machine):
        program = list(struct.iter_unpack("<HBBI", build_filter(machine)))
        assert len(program) < 4096
        for position, (code, yes, no, _) in enumerate(program):
            if code in {0x15, 0x35, 0x45}:
                assert position + 1 + max(yes, no) < len(program)
        assert program[-1] == (0x06, 0, 0, ALLOW)


def test_x32_numbers_are_refused():
    assert verdict("x86_64", 0x40000000) == refusal(errno.ENOSYS)
    assert verdict("x86_64", 0x40000000 | 101) == refusal(errno.ENOSYS)


def test_unknown_architecture_is_a_permanent_fault():
    with pytest.raises(SandboxFault, match="riscv64") as refused:
        build_filter("riscv64")
    assert not refused.value.retryable
