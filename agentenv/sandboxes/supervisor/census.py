"""Who is alive in the sandbox, and which of them no running job accounts for.

The supervisor is PID 1, so whatever is orphaned becomes its child. A process belongs to a running job if its line of
parents ends at that job's leader; or, once orphaned, if it is still in the leader's session or carries the job's mark
in its environment. The mark can be forged, to the name of a job that runs: that buys a process no more than asking that
job to start it.
"""

# Descriptors and bytes are what this works on; pathlib would cost the start milliseconds.
# ruff: noqa: PTH208

from __future__ import annotations

import os

from agentenv.sandboxes.supervisor.lean import signal
from agentenv.sandboxes.supervisor.spawning import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_STOP_PASSES = 3


def reap() -> list[tuple[int, int]]:
    """Collect every child that has ended: (pid, wait status)."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def childless() -> bool:
    """Whether nothing at all is alive: a child of a child would have an ancestor that is ours."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def unaccounted(leaders: Mapping[int, bytes]) -> list[int]:
    """Give the living processes that belong to none of the running jobs.

    Args:
        leaders: First process of each running job to the job's mark.
    """
    if childless():
        return []
    people = _people()
    verdicts: dict[int, bool] = {}
    return [pid for pid, (_, _, alive) in people.items() if alive and not _accounted(pid, people, leaders, verdicts)]


def kill_unaccounted(leaders: Mapping[int, bytes]) -> set[int]:
    """Kill them, and give whom. A dying process may just have forked: call again until there is none.

    They are stopped before they are killed: a stopped process forks nothing and holds its place in the limit of
    processes, so a fork bomb runs out of places.
    """
    doomed: set[int] = set()
    for _ in range(_STOP_PASSES):
        found = set(unaccounted(leaders)) - doomed
        if not found:
            break
        send(found, signal.SIGSTOP)
        doomed |= found
    if doomed and leaders:
        # One that was becoming another program had no environment to look for the mark in. Now it has.
        spared = doomed - set(unaccounted(leaders))
        send(spared, signal.SIGCONT)
        doomed -= spared
    send(doomed, signal.SIGKILL)
    return doomed


def kill_everyone() -> None:
    """Kill every process below the supervisor; where it is PID 1, in one call of the kernel."""
    if os.getpid() == 1:
        send({-1}, signal.SIGKILL)
    else:
        send(unaccounted({}), signal.SIGKILL)


def send(pids: Iterable[int], which: int) -> None:
    """Signal processes, or groups by their negative number, as far as they still exist."""
    for pid in pids:
        try:
            os.kill(pid, which)
        except ProcessLookupError:
            continue


def _accounted(
    pid: int, people: Mapping[int, tuple[int, int, bool]], leaders: Mapping[int, bytes], verdicts: dict[int, bool]
) -> bool:
    me = os.getpid()
    line: list[int] = []
    verdict = None
    while verdict is None:
        if pid in leaders or pid not in people:
            verdict = True  # of a running job; or from outside: no ancestor of it is the supervisor
        elif pid in verdicts:
            verdict = verdicts[pid]
        else:
            line.append(pid)
            parent, session, _ = people[pid]
            # As PID 1, a parent that is gone means an orphan on its way to us.
            if parent == me or (me == 1 and parent > 0 and parent not in people):
                verdict = session in leaders or _mark(pid) in leaders.values()
            pid = parent
    verdicts.update(dict.fromkeys(line, verdict))
    return verdict


def _people() -> dict[int, tuple[int, int, bool]]:
    """Read (parent, session, whether it is alive) of every process but the supervisor."""
    me = str(os.getpid())
    people: dict[int, tuple[int, int, bool]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or name == me:
            continue
        try:
            fd = os.open(f"/proc/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            about = os.read(fd, 1024)
        except OSError:
            continue
        finally:
            os.close(fd)
        # The program's name stands in brackets and may hold anything, brackets and blanks included.
        fields = about[about.rindex(b")") + 2 :].split(maxsplit=4)
        people[int(name)] = (int(fields[1]), int(fields[3]), fields[0] not in {b"Z", b"X"})
    return people


def _mark(pid: int) -> bytes:
    try:
        fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        environment = os.read(fd, 1 << 17)
    except OSError:
        return b""
    finally:
        os.close(fd)
    at = environment.find(MARK + b"=")
    return environment[at + len(MARK) + 1 :].split(b"\0", 1)[0] if at >= 0 else b""
