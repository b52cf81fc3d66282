"""What is the same in every sandbox that has a root of its own, whoever makes it."""

# Folders named here are the sandbox's own.
# ruff: noqa: S108

from __future__ import annotations

from agentenv.core.sandbox import SandboxLimits
from agentenv.sandboxes.host_system import SEARCH_PATH

WORKSPACE = "/workspace"
"""Where the workspace lies."""

ENVIRONMENT = (
    ("PATH", SEARCH_PATH),
    ("HOME", "/tmp"),
    ("TMPDIR", "/tmp"),
    ("USER", "sandbox"),
    ("LANG", "C.UTF-8"),
)
"""Whole environment of a command, before what the caller adds."""

_SHARED_MEMORY_BYTES = 16 << 20


def shared_memory_bytes(limits: SandboxLimits) -> int:
    """Give the size of ``/dev/shm``, which is for temporary files as well."""
    return min(limits.tmp_bytes, _SHARED_MEMORY_BYTES)
