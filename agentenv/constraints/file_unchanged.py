"""The rule that a file of the workspace must stay as it was, decided by its hash."""

from __future__ import annotations

import hashlib
import posixpath
from dataclasses import dataclass, field

from agentenv.core.blobs import BlobWriter
from agentenv.core.constraint import Effect, Verdict
from agentenv.core.sandbox import Sandbox
from agentenv.errors import ConfigError, TaskFault
from agentenv.records.messages import Spill

_AT_ONCE_BYTES = 1 << 20
"""Largest file that is read into memory; larger ones are hashed in pieces, by the sandbox's snapshot."""

_GROWN = f"larger than {_AT_ONCE_BYTES:,} bytes"
"""State of a file that was smaller at first. What it holds now changes nothing, and may take for ever to hash."""

_FIRST = "; at first "
"""Parts the state from what the file was before the first turn, in the states that differ from it."""


@dataclass(slots=True, kw_only=True)
class FileUnchanged:
    """Watches one file through one episode.

    A state is ``sha256:…``, ``larger than …`` (and smaller at first), ``absent``, ``not-a-file`` (a folder, a pipe),
    ``unreadable`` (a link that leads out of the workspace, or no permission) or ``link`` (to a file too large to be
    read at once; a link to a smaller file of the workspace counts by what is read through it). A state that differs
    from the first one names both, so that `check` can tell from the two states alone whether the file was already
    changed: the action that changes it is in breach; one that finds it changed, or puts it back, is not.
    """

    path: str
    """Relative to the workspace."""
    _first: str | None = field(default=None, init=False)
    _small: bool = field(default=False, init=False)
    """Whether it was read at once at first."""

    def __post_init__(self) -> None:
        """Refuse a path that cannot be a file of the workspace.

        Raises:
            ConfigError: It is empty, absolute, leads out of the workspace, or has a NUL in it.
        """
        path = posixpath.normpath(self.path)
        if not self.path or path in (".", "..") or path.startswith(("/", "../")) or "\0" in path:
            raise ConfigError(
                f"checker file-unchanged: path {self.path!r} is no file of the workspace; expected a relative path "
                "such as 'data/original.csv'"
            )
        self.path = path

    async def observe(self, sandbox: Sandbox | None) -> str:
        """Give the state of the file, and what it was at first if it differs.

        Raises:
            TaskFault: The task has no sandbox, so there is no file to watch.
            SandboxFault: Passed through.
        """
        if sandbox is None:
            fault = TaskFault(
                f"a constraint watches the file {self.path!r}, but the task has no sandbox; set needs_sandbox or files"
            )
            fault.retryable = False
            raise fault
        state = await self._state(sandbox)
        if self._first is None:
            self._first = state
        return state if state == self._first else f"{state}{_FIRST}{self._first}"

    def check(self, before: str, effect: Effect, after: str) -> Verdict:
        """Find a breach if the file was as at first before the action and is not so after it."""
        if _FIRST in before or before == after:
            return Verdict(breached=False)
        return Verdict(breached=True, evidence=f"{self.path:.200}: {before} before, {after.partition(_FIRST)[0]} after")

    async def _state(self, sandbox: Sandbox) -> str:
        try:
            content = await sandbox.read(self.path, max_bytes=_AT_ONCE_BYTES + 1)
            if len(content) <= _AT_ONCE_BYTES:
                self._small = self._small or self._first is None
                return f"sha256:{hashlib.sha256(content).hexdigest()}"
            if self._small:
                return _GROWN
            spill = (await sandbox.snapshot(_Hashing())).get(self.path)
            if spill is not None:
                return f"sha256:{spill.sha256}"
            await sandbox.read(self.path, max_bytes=1)
            return "link"
        except (FileNotFoundError, NotADirectoryError):
            return "absent"
        except PermissionError:
            return "unreadable"
        except OSError:
            return "not-a-file"


class _HashingWriter:
    """Hashes what is written and keeps nothing of it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self._size += len(chunk)

    def commit(self) -> Spill:
        return Spill(sha256=self._hash.hexdigest(), size_bytes=self._size)

    def discard(self) -> None:
        pass


class _Hashing:
    """A sink of blobs in which nothing is kept: a snapshot into it only hashes."""

    def open(self) -> BlobWriter:
        return _HashingWriter()

    def put(self, content: bytes) -> Spill:
        return Spill(sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))
