"""How a container is configured, and the first program that runs in it."""

# Temporary folders named here are the container's own.
# ruff: noqa: S108

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentenv.core.sandbox import SandboxLimits
from agentenv.sandboxes.docker_engine import Image
from agentenv.sandboxes.docker_leftovers import owner_labels
from agentenv.sandboxes.own_root import shared_memory_bytes

SAME_KERNEL = frozenset({None, "runc", "crun", "io.containerd.runc.v2"})
"""Runtimes whose containers are processes of the machine's kernel. Others (gVisor, Kata) have a kernel of their own,
which needs threads in the control group, several for each process, and dies when it gets none."""

_SIZES = struct.Struct(">II")
# First program of a container: takes filter and supervisor from stdin, and nothing that comes after them.
_BOOTSTRAP = """
import ctypes, os, struct, sys

def take(size):
    taken = b""
    while len(taken) < size:
        piece = os.read(0, size - len(taken))
        if not piece:
            os._exit(0)
        taken += piece
    return taken

steps, size = struct.unpack(">II", take(8))
program = ctypes.create_string_buffer(take(steps), steps)
supervisor = os.memfd_create("supervisor")
os.set_inheritable(supervisor, False)
content = take(size)
while content:
    content = content[os.write(supervisor, content):]

class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

libc = ctypes.CDLL(None, use_errno=True)
whole = Program(steps // 8, ctypes.addressof(program))
for option, first, second in ((38, 1, 0), (22, 2, ctypes.byref(whole))):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
    if libc.prctl(option, first, second, 0, 0):
        sys.exit(f"prctl({option}) was refused: {os.strerror(ctypes.get_errno())}")
sys.path.insert(0, f"/proc/self/fd/{supervisor}")
from agentenv.sandboxes.supervisor.serving import main
main([])
"""
_SUPERVISING = ("python3", "-I", "-S", "-c", _BOOTSTRAP)


def preamble(machine_filter: bytes, supervisor: bytes) -> bytes:
    """Make what the first program of a container reads from stdin, before the supervisor reads on.

    Args:
        machine_filter: As `agentenv.sandboxes.seccomp.build_filter` makes it.
        supervisor: The zip, for the interpreter of the image.
    """
    return _SIZES.pack(len(machine_filter), len(supervisor)) + machine_filter + supervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerKind:
    """What the containers of one launcher have in common."""

    image: Image
    mounts: tuple[dict[str, Any], ...]
    """In the engine's form."""
    uid: int
    workspace_inside: str
    runtime: str | None

    def config(self, limits: SandboxLimits, workspace: Path | None) -> dict[str, Any]:
        """Give a configuration in the engine's form (Docker Engine API 1.41, "Create a container").

        Args:
            limits: What the control group and the mounts enforce.
            workspace: Folder on the engine's machine; None is a file system in memory.
        """
        return {
            "Image": self.image.id,
            "Entrypoint": list(_SUPERVISING),
            "Cmd": [],
            "User": f"{self.uid}:{self.uid}",
            "WorkingDir": self.workspace_inside,
            "Hostname": "sandbox",
            **dict.fromkeys(("OpenStdin", "StdinOnce", "AttachStdin", "AttachStdout", "AttachStderr"), True),
            "Labels": owner_labels(),
            "HostConfig": {**self._confinement(), **self._resources(limits), **self._places(limits, workspace)},
        }

    def _confinement(self) -> dict[str, Any]:
        return {
            "AutoRemove": True,
            # Not NetworkDisabled: without the engine's /etc/hosts there is no localhost. Its resolv.conf would
            # otherwise be a copy of the machine's.
            "NetworkMode": "none",
            "Dns": ["127.0.0.1"],
            "DnsSearch": ["."],
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true"],
            "LogConfig": {"Type": "none", "Config": {}},
            "Runtime": self.runtime or "",
        }

    def _resources(self, limits: SandboxLimits) -> dict[str, Any]:
        memory = limits.total_memory_bytes or 0
        # It counts threads, and the supervisor is one.
        threads = limits.processes + 1 if self.runtime in SAME_KERNEL else 8 * limits.processes + 512
        return {
            "Memory": memory,
            "MemorySwap": memory,
            "PidsLimit": threads,
            "ShmSize": shared_memory_bytes(limits),
            "Ulimits": [{"Name": name, "Soft": 0, "Hard": 0} for name in ("core", "msgqueue")],
        }

    def _places(self, limits: SandboxLimits, workspace: Path | None) -> dict[str, Any]:
        mounts = list(self.mounts)
        tmpfs = {
            "/tmp": f"rw,nosuid,nodev,exec,mode=1777,size={limits.tmp_bytes}",
            # Nothing there is a command's business, and it tells of the machine.
            "/sys": "ro,nosuid,nodev,noexec,size=4k",
        }
        if workspace is None:
            tmpfs[self.workspace_inside] = (
                f"rw,nosuid,nodev,exec,mode=0700,uid={self.uid},gid={self.uid},"
                f"size={limits.workspace_bytes},nr_inodes={limits.workspace_files}"
            )
        else:
            mounts.append({"Type": "bind", "Source": str(workspace), "Target": self.workspace_inside})
        return {"Tmpfs": tmpfs, "Mounts": mounts}
