"""What a warden is told, as ``marshal`` carries it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class Settings(TypedDict):
        """Every path is a byte string and absolute."""

        kind: str
        """``namespaces``, ``landlock`` or ``none``."""
        user: int
        """Whom a warden started by root becomes."""
        joins: list[bytes]
        """``cgroup.procs`` files of its groups."""
        told: int
        """Descriptor for ``{"child-pid": PID}``, of the process in which the supervisor serves."""
        harness: int
        """pidfd of the harness."""
        filter: bytes
        """System-call filter; empty: none."""
        processes: int
        """Limit of the user's processes as a whole, for a supervisor that has no user namespace; 0: none."""
        workspace: bytes
        """Folder of the host; empty: a new one in memory."""
        workspace_bytes: int
        workspace_files: int
        tmp_bytes: int
        shared_memory_bytes: int
        system_links: list[tuple[bytes, bytes]]
        """Path and target of the links of the root."""
        system_paths: list[bytes]
        """Of the host, to be read and executed."""
        writable: list[bytes]
        """Without a root of its own: what can be changed."""
        files: dict[bytes, bytes]
        """Files of the root."""
