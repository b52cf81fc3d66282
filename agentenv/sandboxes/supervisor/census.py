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

_RUNNING, _UNDECIDED, _NOBODYS = "of a running job", "not to be told yet", "of no running job"

_STOP_PASSES = 3
_THREADS, _ENV_START, _ENV_END = 17, 47, 48
"""Places in /proc/PID/stat, counted from the state (proc(5) counts from the pid, two further)."""
_HEADLESS = b"Z+"
"""State given to a process whose first thread has ended and others have not; the kernel calls it a zombie."""
_DEAD = frozenset({b"Z", b"X"})
_STANDING = frozenset({b"T", b"t", _HEADLESS})
"""It is on its way to nowhere: what can be told of it can be told now."""


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
    """Give the living processes that belong to none of the running jobs, as far as can be told.

    Args:
        leaders: First process of each running job to the job's mark.
    """
    return [pid for pid, whose in _look(leaders).items() if whose != _RUNNING]


class Sweeper:
    """Kills what belongs to none of the running jobs.

    While a process becomes another program it has no environment to look for the mark in. One that was stopped and is
    still on its way is held, and judged once it stands.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: set[int] = set()

    @property
    def undecided(self) -> bool:
        """Whether some were stopped of whom it cannot be told yet: sweep again."""
        return bool(self._held)

    def sweep(self, leaders: Mapping[int, bytes], *, patient: bool = True) -> set[int]:
        """Kill them, and give whom. A dying process may just have forked: call again until there is none.

        They are stopped before they are killed: a stopped process forks nothing and holds its place in the limit of
        processes, so a fork bomb runs out of places.

        Args:
            leaders: First process of each running job to the job's mark.
            patient: Spare for now those of whom it cannot be told.
        """
        stopped = set(self._held)
        for _ in range(_STOP_PASSES):
            found = set(unaccounted(leaders)) - stopped
            if not found:
                break
            send(found, signal.SIGSTOP)
            stopped |= found
        if not stopped:
            return stopped
        now = _look(leaders) if leaders else {}
        self._held = {pid for pid in stopped if patient and now.get(pid) == _UNDECIDED}
        spared = {pid for pid in stopped if now.get(pid) == _RUNNING}
        send(spared, signal.SIGCONT)
        doomed = stopped - self._held - spared
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


def _look(leaders: Mapping[int, bytes]) -> dict[int, str]:
    """Say of every living process whose it is."""
    if childless():
        return {}
    people = _people()
    verdicts: dict[int, str] = {}
    return {pid: _whose(pid, people, leaders, verdicts) for pid, about in people.items() if about[2] not in _DEAD}


def _whose(
    pid: int, people: Mapping[int, tuple[int, int, bytes, bool]], leaders: Mapping[int, bytes], verdicts: dict[int, str]
) -> str:
    me = os.getpid()
    line: list[int] = []
    verdict: str | None = None
    while verdict is None:
        if pid in leaders or pid not in people:
            verdict = _RUNNING  # of a running job; or from outside: no ancestor of it is the supervisor
        elif pid in verdicts:
            verdict = verdicts[pid]
        else:
            line.append(pid)
            parent, session, state, bare = people[pid]
            # As PID 1, a parent that is gone means an orphan on its way to us.
            if parent == me or (me == 1 and parent > 0 and parent not in people):
                verdict = _RUNNING if session in leaders else _orphan(pid, leaders, state=state, bare=bare)
            pid = parent
    verdicts.update(dict.fromkeys(line, verdict))
    return verdict


def _orphan(pid: int, leaders: Mapping[int, bytes], *, state: bytes, bare: bool) -> str:
    if bare or not leaders:
        return _NOBODYS
    environment = _environment(pid, state)
    at = environment.find(MARK + b"=")
    if at >= 0 and environment[at + len(MARK) + 1 :].split(b"\0", 1)[0] in leaders.values():
        return _RUNNING
    return _NOBODYS if environment or state in _STANDING else _UNDECIDED


def _people() -> dict[int, tuple[int, int, bytes, bool]]:
    """Read (parent, session, state, whether its environment is empty) of every process but the supervisor."""
    me = str(os.getpid())
    people: dict[int, tuple[int, int, bytes, bool]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or name == me:
            continue
        about = _read(f"/proc/{name}/stat", 1024)
        if about:
            # The program's name stands in brackets and may hold anything, brackets and blanks included.
            fields = about[about.rindex(b")") + 2 :].split()
            state = _HEADLESS if fields[0] == b"Z" and fields[_THREADS] != b"1" else fields[0]
            # Where there is none yet, both ends of it are 0.
            bare = fields[_ENV_START] == fields[_ENV_END] != b"0"
            people[int(name)] = (int(fields[1]), int(fields[3]), state, bare)
    return people


def _environment(pid: int, state: bytes) -> bytes:
    """Read that of a process; of one without its first thread, through the others."""
    if state != _HEADLESS:
        return _read(f"/proc/{pid}/environ", 1 << 17)
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return b""
    return next(filter(None, (_read(f"/proc/{pid}/task/{thread}/environ", 1 << 17) for thread in threads)), b"")


def _read(path: str, most: int) -> bytes:
    """Read the beginning of a file of /proc; nothing if its process is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, most)
    except OSError:
        return b""
    finally:
        os.close(fd)
