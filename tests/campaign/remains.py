"""What a collection leaves on a machine: found by comparing what is there before and after.

The machine is shared, so only what can be told to be ours counts: processes that descend from this one (which, while
it looks, adopts those of its descendants that lose their parent) or carry the campaign's variable; containers with our
label; mounts, control groups and files that bear our folder or the name of our sandboxes; descriptors of this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from agentenv.sandboxes.cgroups import find_cgroups
from agentenv.sandboxes.docker_leftovers import OWNER_LABEL
from agentenv.sandboxes.workspaces import Owner

from tests.campaign.striking import parent_of
from tests.campaign.suite import MARK

_SET_CHILD_SUBREAPER = 36
_CONTAINER = re.compile(r"[0-9a-f]{64}")
_SHARED_FOLDERS = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What is there, each thing as text and how often."""

    processes: Counter[str]
    containers: Counter[str]
    mounts: Counter[str]
    groups: Counter[str]
    files: Counter[str]
    descriptors: Counter[str]

    def beyond(self, before: Remains) -> dict[str, list[str]]:
        """Give what is here and was not there, by sort."""
        more = {each.name: getattr(self, each.name) - getattr(before, each.name) for each in fields(self)}
        return {name: sorted(left.elements()) for name, left in more.items() if left}


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """Where to look, and for what."""

    token: str
    """Value of the campaign's variable."""
    root: Path
    """Folder that the workspaces are in, and nothing else."""
    blobs: Path
    """Of the run: nothing may be left that is only half written."""
    engine: str | None = None
    """Address of a Docker Engine; None where there are no containers to look for."""

    def look(self) -> Remains:
        """Look at everything. Blocking."""
        prefix = Owner.this_process().prefix
        return Remains(
            processes=Counter(_processes(self.token.encode())),
            containers=Counter(_containers(self.engine, prefix)),
            mounts=Counter(_mounts(prefix, str(self.root))),
            groups=Counter(_groups(prefix, self.engine)),
            files=Counter(_files(self.root, self.blobs, self.token)),
            descriptors=Counter(_descriptors()),
        )


@contextlib.contextmanager
def adopting() -> Generator[None]:
    """Make this process the parent of every descendant that loses its own, so that none gets out of sight.

    Source: prctl(2), PR_SET_CHILD_SUBREAPER.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot adopt orphans")
    try:
        yield
    finally:
        libc.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def bury(before: Remains) -> None:
    """Take note of the end of adopted children, as the machine's first process does with orphans. Spares the others."""
    for child in _children().get(os.getpid(), ()):
        if _named(child) not in before.processes and _state(child) == "Z":
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)


def _processes(token: bytes) -> Iterable[str]:
    children = _children()
    todo, found = list(children.get(os.getpid(), ())), set[int]()
    while todo:
        pid = todo.pop()
        found.add(pid)
        todo += children.get(pid, ())
    mark = MARK.encode() + b"=" + token
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.add(int(process.name))
    return [name for pid in found if (name := _named(pid))]


def _children() -> dict[int, list[int]]:
    """Give the children of every process."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            children.setdefault(parent_of(int(process.name)), []).append(int(process.name))
    return children


def _named(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return f"{pid} {_state(pid)} {command[:200]}"
    except OSError:
        return ""


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""


def _containers(engine: str | None, prefix: str) -> Iterable[str]:
    if engine is None:
        return []
    from docker import DockerClient

    client: Any = DockerClient(base_url=engine)
    try:
        found = client.containers.list(all=True, filters={"label": f"{OWNER_LABEL}={prefix}"}, ignore_removed=True)
        return [f"{each.name} {each.status}" for each in found]
    finally:
        client.close()


def _mounts(*names: str) -> Iterable[str]:
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    return lines_with(names, text)


def lines_with(names: Iterable[str], text: str) -> list[str]:
    """Give the lines of a text that have any of the names in them."""
    wanted = tuple(names)
    return [line for line in text.splitlines() if any(name in line for name in wanted)]


def _groups(prefix: str, engine: str | None) -> Iterable[str]:
    folders = [
        Path(above, name) for root in find_cgroups().roots for above, names, _ in os.walk(root) for name in names
    ]
    found = [str(folder) for folder in folders if folder.name.startswith(prefix)]
    if engine is not None:
        # The engine makes them, and names them by the container; a private engine (tests/docker) does so in its own.
        own = Path(engine).parent.name.replace(".", "-")
        found += [
            str(folder)
            for folder in folders
            if _CONTAINER.search(folder.name) and ("agentenv-engine-" not in str(folder) or own in folder.parts)
        ]
    return found


def _files(root: Path, blobs: Path, token: str) -> Iterable[str]:
    whole = [str(path) for path in root.iterdir()]
    whole += [str(path) for path in (blobs / "tmp").glob("*")]
    return whole + [str(path) for folder in _SHARED_FOLDERS for path in folder.glob(f"*{token}*")]


def _descriptors() -> Iterable[str]:
    found: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing itself
            # Sockets and pipes by their sort alone: the same one may have another number by now.
            found.append(str(descriptor.readlink()).partition(":[")[0])
    return found
