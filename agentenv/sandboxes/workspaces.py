"""Workspaces on the host: private folders that name their owner, and the removal of those whose owner is gone.

The name of a folder says whose it is: machine, boot, pid namespace, pid and start time of the process. A later start
removes the folders of the dead and spares those of the living, of other machines that share the file system, and of
other containers, about whose processes it cannot know.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import os
import signal
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from agentenv.sandboxes.removal import remove_tree

_log = logging.getLogger(__name__)

_PREFIX = "agentenv-sandbox"
_MARK = "AGENTENV_LEASE"


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
            write_labels(lease, labels)
    except OSError:
        remove_tree(lease)
        raise
    return lease


def write_labels(lease: Path, labels: Mapping[str, str]) -> None:
    """Write the labels of a lease, in place of those it had. Blocking.

    Raises:
        OSError: They cannot be written.
    """
    (lease / "labels.json").write_text(json.dumps(dict(labels)), encoding="utf-8")


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


def marked(lease: Path) -> tuple[str, str]:
    """Two arguments, next to one another, by which a launcher is found when the owner of its lease is dead."""
    return _MARK, str(lease)


def _kill_leftovers(names: set[bytes]) -> None:
    """Kill launchers whose owner died and that are still there, with their children.

    There are none as long as supervisors work; this is for the day when one hangs. A process that only names the
    folder, such as that of a person who looks into it, is none.
    """
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or somebody else's
            _kill_launcher(int(process.name), names)


def _kill_launcher(pid: int, names: set[bytes]) -> None:
    """Kill a process if it is a launcher; what is looked at is held by a descriptor, so that no other gets its number.

    Raises:
        OSError: It is gone, or not ours.
    """
    with _Held(pid) as launcher:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if not any(
            mark == os.fsencode(_MARK) and os.path.basename(lease) in names  # noqa: PTH119 - bytes
            for mark, lease in itertools.pairwise(arguments)
        ):
            return
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(_Held(int(child))) for child in children]
            ours = [child for child in held if child.is_child_of(pid)]
            for process in (launcher, *ours):
                process.kill()


class _Held:
    """A process, whose number is not given to another one meanwhile: signals go to this one or to none."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._fd = os.pidfd_open(pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def is_child_of(self, pid: int) -> bool:
        fields = _fields(self._pid)
        return fields is not None and fields[1] == str(pid)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, signal.SIGKILL)


def _is_ours(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.geteuid()
    except FileNotFoundError:
        return False  # a sibling was quicker


def _started(pid: int) -> str | None:
    fields = _fields(pid)
    return None if fields is None or fields[0] in "ZX" else fields[19]


def _fields(pid: int) -> list[str] | None:
    """Give what the kernel says of a process, from its state on; None if there is none."""
    try:
        about = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return about[about.rindex(")") + 2 :].split()
