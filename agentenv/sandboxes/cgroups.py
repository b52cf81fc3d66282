"""Control groups: what bounds and counts the memory and the processes of a sandbox as a whole.

One group per sandbox, below a folder found once: with version 2 the nearest group above this process that hands the
controllers ``memory`` and ``pids`` down and may be written; with version 1, and the rights it takes, this process's own
group in both hierarchies, or in the one that has both. Nothing else of the machine's groups is changed. The name of a
group says who owns it (`agentenv.sandboxes.workspaces.Owner`), so that a later start can remove those of the dead.

Version 1 is tested on a real kernel; version 2 only against a model of its files.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agentenv.core.sandbox import SandboxLimits
from agentenv.sandboxes.cgroup_places import UNIFIED, Place, hierarchies, memberships
from agentenv.sandboxes.launching import MemoryUse
from agentenv.sandboxes.workspaces import Owner

_log = logging.getLogger(__name__)

_PROCESSES_BESIDE = 8
"""Of the launcher and the supervisor, which the limit of a sandbox's processes is not for."""
_REMOVAL_S = 5.0
_TICK_S = 0.002
_PROBE_S = 10.0
_ENTER = 'for group in "$@"; do shift; [ "$group" = -- ] && break; echo 0 >"$group" || exit 125; done; exec "$@"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroups:
    """Where groups can be made; or why none can."""

    version: int = 0
    parents: tuple[Path, ...] = ()
    """Groups to make groups in: one with version 2; with version 1 that of memory and that of processes, or one that
    is both."""
    roots: tuple[Path, ...] = field(default=(), compare=False)
    """Where the hierarchies are mounted: below them the dead may have had another group than ours to make theirs in."""
    missing: str = ""
    """Why there can be none; empty if there can."""

    def unlimited(self) -> str:
        """Say what is not enforced for want of groups; empty if there are some."""
        if not self.missing:
            return ""
        return f"the memory of all processes together is not limited, only that of each ({self.missing})"

    def make(self, name: str, limits: SandboxLimits) -> Cgroup | None:
        """Make the group of one sandbox; None where there can be none. Blocks for a few calls of the kernel.

        Raises:
            OSError: The kernel refuses now what it granted when groups were looked for.
        """
        if self.missing:
            return None
        group = Cgroup(version=self.version, folders=tuple(parent / name for parent in self.parents))
        try:
            for folder in group.folders:
                folder.mkdir()
            _limit(group, limits)
        except OSError:
            group.try_to_remove()
            raise
        return group

    def sweep(self) -> list[Path]:
        """Remove the groups whose owner is gone, with what is alive in them; give those that were. Blocking."""
        here = Owner.this_process()
        dead = [
            Path(above, name)
            for root in self.roots
            for above, names, _ in os.walk(root)
            for name in names
            if (owner := Owner.of(name)) is not None and owner.is_gone(here)
        ]
        return [folder for folder in dead if _remove_now(Cgroup(self.version, (folder,)))]


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The group of one sandbox."""

    version: int
    folders: tuple[Path, ...]
    """As in `Cgroups.parents`."""

    @property
    def joins(self) -> tuple[Path, ...]:
        """Files to write ``0`` to, by a process that wants to be in it, before it starts another."""
        return tuple(folder / "cgroup.procs" for folder in self.folders)

    def entering(self, program: Sequence[str]) -> list[str]:
        """Give a command line that runs a program from within the group; exit code 125 if it cannot be entered."""
        return ["/bin/sh", "-c", _ENTER, "sh", *map(str, self.joins), "--", *program]

    def memory(self) -> MemoryUse | None:
        """Read what was counted; None if the group is gone. ``peak_bytes`` is None on kernels before 5.19."""
        names = ("memory.current", "memory.peak") if self.version == 2 else _COUNTERS_V1
        now, peak = (_number(self.folders[0] / name) for name in names)
        return None if now is None else MemoryUse(now_bytes=now, peak_bytes=peak)

    def kill(self) -> None:
        """Kill every process in it, as far as it is known by now. Does not wait."""
        if self.version == 2:
            try:
                (self.folders[0] / "cgroup.kill").write_text("1", encoding="ascii")
                return
            except OSError:
                pass  # before Linux 5.14, or gone
        for folder in self.folders:
            for pid in _processes(folder):
                try:
                    os.kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    continue

    async def remove(self) -> None:
        """Kill what is left in it, and remove it; the kernel takes a moment to finish the dead."""
        end = time.monotonic() + _REMOVAL_S
        while not self.try_to_remove():
            if time.monotonic() > end:
                _log.warning("the control group %s could not be removed; a later start tries again", self.folders[0])
                return
            self.kill()
            await asyncio.sleep(_TICK_S)

    def try_to_remove(self) -> bool:
        """Remove it if nothing is in it; say whether it is gone."""
        gone = True
        for folder in self.folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in {errno.EBUSY, errno.ENOTEMPTY}:
                    raise
                gone = False
        return gone


_COUNTERS_V1 = ("memory.usage_in_bytes", "memory.max_usage_in_bytes")


def find_cgroups(
    *, membership: Path = Path("/proc/self/cgroup"), mounts: Path = Path("/proc/self/mountinfo")
) -> Cgroups:
    """Look for a place to make groups in, and prove it by making one and sending a process there. Blocking.

    Args:
        membership: Which groups this process is in.
        mounts: Where they can be seen.
    """
    try:
        found = candidates(_text(membership), _text(mounts))
    except OSError as error:
        return Cgroups(missing=f"control groups cannot be seen here: {error.strerror}")
    reasons: list[str] = []
    for candidate in found:
        reason = _prove(candidate)
        if not reason:
            return candidate
        reasons.append(reason)
    if not reasons:
        reasons.append("no mounted hierarchy has the controllers memory and pids for groups below ours")
    return Cgroups(missing="; ".join(reasons))


def group_of(pid: int, *, mounts: Path = Path("/proc/self/mountinfo")) -> Cgroup | None:
    """Find the group that counts the memory of a process, made by somebody else; None where it cannot be seen."""
    try:
        groups = memberships(_text(Path(f"/proc/{pid}/cgroup")))
        places = hierarchies(_text(mounts))
    except OSError:
        return None
    controller, version = ("memory", 1) if "memory" in groups else (UNIFIED, 2)
    seen = _seen(controller, groups, places)
    return None if seen is None else Cgroup(version, (seen[0],))


def candidates(membership: str, mounts: str) -> list[Cgroups]:
    """Give where groups may be made, not yet proven, the better first.

    Args:
        membership: Text of ``/proc/self/cgroup``.
        mounts: Text of ``/proc/self/mountinfo``.
    """
    groups, places = memberships(membership), hierarchies(mounts)
    found: list[Cgroups] = []
    own = _seen(UNIFIED, groups, places)
    if own is not None:
        folder, top = own
        above = (folder, *(parent for parent in folder.parents if parent.is_relative_to(top)))
        nearest = next((each for each in above if _hands_down(each)), None)
        found += [] if nearest is None else [Cgroups(version=2, parents=(nearest,), roots=(top,))]
    memory, pids = _seen("memory", groups, places), _seen("pids", groups, places)
    if memory is not None and pids is not None:
        parents, roots = zip(*dict.fromkeys((memory, pids)), strict=True)  # both may be in one hierarchy
        found.append(Cgroups(version=1, parents=parents, roots=roots))
    return found


def _text(path: Path) -> str:
    """Read what the kernel says; names of groups and folders may have any bytes."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _hands_down(folder: Path) -> bool:
    try:
        given = (folder / "cgroup.subtree_control").read_text(encoding="ascii").split()
    except OSError:
        return False
    return {"memory", "pids"} <= set(given)


def _seen(
    controller: str, groups: Mapping[str, PurePosixPath], places: Mapping[str, Sequence[Place]]
) -> tuple[Path, Path] | None:
    """Give the folder of our group in one hierarchy, and where that is mounted, if it can be seen anywhere."""
    group = groups.get(controller)
    if group is None or ".." in group.parts:
        return None
    for place in places.get(controller, ()):
        if group.is_relative_to(place.shown):
            return place.mounted / group.relative_to(place.shown), place.mounted
    return None


def _prove(candidate: Cgroups) -> str:
    """Make a group and run a process in it; say what prevented it, or nothing."""
    name = f"{Owner.this_process().prefix}probe{time.monotonic_ns()}"
    place = candidate.parents[0]
    try:
        group = candidate.make(name, SandboxLimits())
    except OSError as error:
        return f"version {candidate.version}: {place}: {error.strerror}"
    assert group is not None, "a candidate has parents"
    try:
        done = subprocess.run(group.entering(["true"]), capture_output=True, check=False, timeout=_PROBE_S, env={})
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"version {candidate.version}: no process could be tried below {place}: {error}"
    finally:
        _remove_now(group)
    return "" if done.returncode == 0 else f"version {candidate.version}: no process may be moved below {place}"


def _limit(group: Cgroup, limits: SandboxLimits) -> None:
    total = limits.total_memory_bytes
    processes = str(limits.processes + _PROCESSES_BESIDE)
    memory = group.folders[0]
    if group.version == 2:
        (memory / "pids.max").write_text(processes, encoding="ascii")
        if total is not None:
            (memory / "memory.max").write_text(str(total), encoding="ascii")
            _write_where_there_is_swap(memory / "memory.swap.max", "0")
        return
    (group.folders[-1] / "pids.max").write_text(processes, encoding="ascii")
    if total is not None:
        (memory / "memory.limit_in_bytes").write_text(str(total), encoding="ascii")
        _write_where_there_is_swap(memory / "memory.memsw.limit_in_bytes", str(total))


def _write_where_there_is_swap(path: Path, content: str) -> None:
    """Limit swap; the file is missing where the kernel does not account for it."""
    if path.exists():
        path.write_text(content, encoding="ascii")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except OSError:
        return None


def _processes(folder: Path) -> list[int]:
    try:
        return [int(line) for line in (folder / "cgroup.procs").read_text(encoding="ascii").split()]
    except OSError:
        return []


def _remove_now(group: Cgroup) -> bool:
    """Remove a group with what is alive in it; say whether it went. Blocking."""
    end = time.monotonic() + _REMOVAL_S
    why = "processes in it do not end"
    try:
        while time.monotonic() < end:
            if group.try_to_remove():
                return True
            group.kill()
            time.sleep(_TICK_S)
    except OSError as error:
        why = error.strerror  # another user's, perhaps
    # What cannot be removed must not keep others from working.
    _log.warning("the control group %s could not be removed: %s", group.folders[0], why)
    return False
