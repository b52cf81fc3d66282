"""Which control groups a process is in, and where they can be seen: what the kernel says, read whatever it says.

A line of another form than the known ones is passed over: it is about something else.

Source: cgroups(7), ``/proc/PID/cgroup``; proc_pid_mountinfo(5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

UNIFIED = ""
"""In place of a controller's name: the one hierarchy of version 2."""

_CONTROLLERS = frozenset({"memory", "pids"})
"""Those of version 1 that are looked for."""
_MEMBERSHIP = re.compile(r"[0-9]+:([^:]*):(/[^\0]*)")
_MOUNT = re.compile(r"[0-9]+ [0-9]+ [0-9]+:[0-9]+ (/[^ \0]*) (/[^ \0]*) [^ ]+(?: [^ ]+)* - (cgroup2?) [^ ]* ([^ ]*)")
_ESCAPED = re.compile(r"\\(011|012|040|134)")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a hierarchy, or a part of it, can be seen."""

    mounted: Path
    shown: PurePosixPath
    """The group that is seen there."""


def memberships(text: str) -> dict[str, PurePosixPath]:
    """Read ``/proc/PID/cgroup``: controller, `UNIFIED`, or ``name=...`` of a hierarchy without controllers, to group.

    A hierarchy of version 1 may have several controllers, separated by commas.
    """
    found: dict[str, PurePosixPath] = {}
    for line in text.split("\n"):
        if (match := _MEMBERSHIP.fullmatch(line)) is not None:
            found.update(dict.fromkeys(match[1].split(","), PurePosixPath(match[2])))
    return found


def hierarchies(text: str) -> dict[str, list[Place]]:
    """Read ``/proc/PID/mountinfo``: controller, or `UNIFIED`, to where it is mounted, the latest mount first.

    A hierarchy may be mounted at several places, and a part of it alone, as containers have it.
    """
    found: dict[str, list[Place]] = {}
    for line in reversed(text.split("\n")):
        if (match := _MOUNT.fullmatch(line)) is None:
            continue
        place = Place(Path(_unescaped(match[2])), PurePosixPath(_unescaped(match[1])))
        names = {UNIFIED} if match[3] == "cgroup2" else _CONTROLLERS & set(match[4].split(","))
        for name in names:
            found.setdefault(name, []).append(place)
    return found


def _unescaped(text: str) -> str:
    """Read the form in which the kernel writes spaces and line ends of paths."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
