"""What the processes of the sandbox have used and use."""

from __future__ import annotations

import os
import resource

from agentenv.sandboxes.supervisor import census

_UTIME, _CUTIME, _RSS = 11, 13, 21
"""Places in /proc/PID/stat, counted from the state (proc(5) counts from the pid, two further)."""


def measure() -> dict[str, int | bytes]:
    """Give the fields of an answer: living processes, CPU time in microseconds, resident memory.

    CPU time is that of ended processes that somebody waited for, and of living ones with what they waited for.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    alive = ticks = pages = 0
    for pid in census.unaccounted({}):
        about = _stat(pid)
        if about:
            alive += 1
            ticks += sum(map(int, about[_UTIME : _CUTIME + 2]))
            pages += int(about[_RSS])
    cpu_s = ended.ru_utime + ended.ru_stime + ticks / tick
    return {"processes": alive, "cpu_micros": int(cpu_s * 1e6), "memory": pages * page}


def _stat(pid: int) -> list[bytes]:
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        about = os.read(fd, 4096)
    except OSError:
        return []
    finally:
        os.close(fd)
    return about[about.rindex(b")") + 2 :].split()
