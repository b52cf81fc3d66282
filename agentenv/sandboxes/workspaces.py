"""Workspaces on the host: private folders that name their owner, and the removal of those whose owner is gone.

The name of a folder says whose it is: machine, boot, pid namespace, pid and start time of the process. A later start
removes the folders of the dead and spares those of the living, of other machines that share the file system, and of
other containers, about whose processes it cannot know.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentenv.sandboxes.removal import remove_tree

_log = logging.getLogger(__name__)

_PREFIX = "agentenv-sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process, told from every other one that was or will be."""

    machine: str
    boot: str
    namespace: str
    pid: int
    started: str
    """Clock ticks after boot."""

    @classmethod
    def this_process(cls) -> Owner:
        """Describe the calling process."""
        return cls(
            machine=hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8],
            boot=Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8],
            namespace=str(Path("/proc/self/ns/pid").stat().st_ino),
            pid=os.getpid(),
            started=_started(os.getpid()) or "0",
        )

    @classmethod
    def of(cls, folder: str) -> Owner | None:
        """Read the owner from a folder's name; None if it is no workspace."""
        parts = folder.split(".")
        if len(parts) != 7 or parts[0] != _PREFIX or not parts[4].isdigit():
            return None
        _, machine, boot, namespace, pid, started, _ = parts
        return cls(machine=machine, boot=boot, namespace=namespace, pid=int(pid), started=started)

    @property
    def prefix(self) -> str:
        """First part of the names of its folders."""
        return f"{_PREFIX}.{self.machine}.{self.boot}.{self.namespace}.{self.pid}.{self.started}."

    def is_gone(self, here: Owner) -> bool:
        """Whether it is certain, seen from the process ``here``, that this owner no longer runs."""
        if self.machine != here.machine:
            return False
        if self.boot != here.boot:
            return True
        return self.namespace == here.namespace and _started(self.pid) != self.started


def make_workspace(root: Path, uid: int, labels: Mapping[str, str]) -> Path:
    """Make a lease's folder below ``root``, and in it ``workspace``, which belongs to ``uid`` alone. Blocking.

    The labels lie beside it in ``labels.json``, for people who wonder whose it is.

    Raises:
        OSError: The disk is full, or the root may not be written.
    """
    lease = Path(tempfile.mkdtemp(prefix=Owner.this_process().prefix, dir=root))
    try:
        lease.chmod(0o711)  # the sandbox's user has to pass through it
        workspace = lease / "workspace"
        workspace.mkdir(mode=0o700)
        if uid != os.geteuid():
            os.chown(workspace, uid, uid)
        if labels:
            (lease / "labels.json").write_text(json.dumps(dict(labels)), encoding="utf-8")
    except OSError:
        remove_tree(lease)
        raise
    return lease


def sweep_workspaces(root: Path) -> list[Path]:
    """Remove the folders of our user whose owner is gone; give those that were. Blocking."""
    here = Owner.this_process()
    dead = [
        path
        for path in root.glob(f"{_PREFIX}.*")
        if (owner := Owner.of(path.name)) is not None and owner.is_gone(here) and _is_ours(path)
    ]
    if dead:
        _kill_leftovers({os.fsencode(path.name) for path in dead})
    removed: list[Path] = []
    for path in dead:
        try:
            remove_tree(path)
        except OSError as error:
            # A sibling may be at the same folder; and what cannot be removed must not keep others from working.
            if path.exists():
                _log.warning("the workspace %s of a dead process could not be removed: %s", path, error)
        else:
            removed.append(path)
    return removed


def _kill_leftovers(names: set[bytes]) -> None:
    """Kill launchers whose owner died and that are still there, with their children: their command line has the folder.

    There are none as long as supervisors work; this is for the day when one hangs.
    """
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(name in (process / "cmdline").read_bytes() for name in names):
                children = (process / "task" / process.name / "children").read_text(encoding="ascii")
                for pid in (process.name, *children.split()):
                    os.kill(int(pid), signal.SIGKILL)
        except OSError:
            continue  # ended meanwhile, or somebody else's


def _is_ours(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.geteuid()
    except FileNotFoundError:
        return False  # a sibling was quicker


def _started(pid: int) -> str | None:
    try:
        about = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *others = about[about.rindex(")") + 2 :].split()
    return None if state in "ZX" else others[18]
