"""Checks of what a command can use up: processes, memory, space, processor time."""

# Temporary folders named here are the sandbox's own.
# What runs inside is kept to the modules that start quickest.
# ruff: noqa: S108, PTH107, PTH123

from __future__ import annotations

import asyncio
from typing import Any

from agentenv.core.sandbox import Sandbox
from agentenv.sandboxes.conformance.check import GRACE_S, LIMITS, Bench, Finding, found, patience, with_limits
from agentenv.sandboxes.conformance.inside import Unanswered, ask, command, goes_on, left_of, said, shell

_MIB = 1 << 20
_FORKS = 200
_FILES, _MOST_FILES = 500, 20_000
_KILLED = 137


def fork_many(most: int, seconds: int) -> dict[str, Any]:
    """Fork sleepers until it fails; say how many there were, and why there were no more."""
    import os
    import time

    made, why = 0, ""
    try:
        for _ in range(most):
            if os.fork() == 0:
                time.sleep(seconds)
                os._exit(0)
            made += 1
    except OSError as error:
        why = error.strerror or str(error)
    return {"made": made, "why": why}


async def fork_bomb(bench: Bench) -> Finding:
    """Forking fails at the limit of processes; the next command runs, nothing is left."""
    mark = bench.mark()
    async with bench.sandbox() as sandbox:
        forked = await ask(sandbox, fork_many, mark=mark, most=_FORKS, seconds=int(float(mark)))
        made, why = forked["made"], forked["why"]
        breaches = [*await goes_on(sandbox), *await left_of(sandbox, mark)]
    if made > LIMITS.processes + 8 or not why:
        breaches.append(f"{made} forks went through, the limit being {LIMITS.processes} processes")
    return found(breaches, f"{made} forks, then: {why}; all ended with their command")


def renew(seconds: float) -> None:
    """Fork two and end, again and again, in sessions of their own and deaf to SIGTERM; bounded in time."""
    import os
    import signal
    import time

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if os.fork() == 0:
                os.setsid()
                continue
            if os.fork() == 0:
                continue
            time.sleep(0.01)
        except OSError:
            time.sleep(0.001)
    os._exit(0)


async def fork_bomb_renewing(bench: Bench) -> Finding:
    """Processes that fork two and end, each in a session of its own, all end at the timeout."""
    mark = bench.mark()
    async with bench.sandbox() as sandbox:
        run = sandbox.run(command(renew, mark=mark), deadline=patience(), timeout_s=0.5, stdin=b'{"seconds": 8}')
        done = await run
        breaches = [*await left_of(sandbox, mark), *await goes_on(sandbox)]
    if not done.timed_out:
        breaches.append(f"it ended with {done.exit_code} and not at its timeout")
    if done.duration_s > 0.5 + GRACE_S:
        breaches.append(f"its end took {done.duration_s:.1f} s")
    return found(breaches, f"all of them ended within {done.duration_s:.1f} s")


def grow(block: int, most: int) -> dict[str, Any]:
    """Fill blocks of memory; say how many there were, and why there were no more."""
    blocks: list[bytearray] = []
    try:
        while len(blocks) < most:
            blocks.append(bytearray(b"x") * block)
    except MemoryError:
        return {"blocks": len(blocks), "why": "MemoryError"}
    return {"blocks": len(blocks), "why": ""}


async def mem_bomb_one(bench: Bench) -> Finding:
    """A process is refused memory beyond its limit, or killed; the next command runs."""
    async with bench.sandbox() as sandbox:
        try:
            grown = await ask(sandbox, grow, block=16 * _MIB, most=2 * LIMITS.memory_bytes // (16 * _MIB))
        except Unanswered as killed:
            return found(await goes_on(sandbox), f"{killed}")
        breaches = await goes_on(sandbox)
    held = grown["blocks"] * 16
    if not grown["why"] or held * _MIB > LIMITS.memory_bytes:
        breaches.append(f"it held {held} MiB, the limit being {LIMITS.memory_bytes // _MIB}")
    return found(breaches, f"{held} MiB, then: {grown['why']}")


def grow_together(processes: int, size: int, seconds: int) -> int:
    """Have processes fill memory side by side; say how many of them hold it when each has it or is dead."""
    import os
    import time

    ends: list[int] = []
    for _ in range(processes):
        reads, writes = os.pipe()
        if os.fork() == 0:
            block = bytearray(b"x") * size
            os.write(writes, block[:1])
            time.sleep(seconds)
            os._exit(0)
        os.close(writes)
        ends.append(reads)
    for end in ends:
        os.read(end, 1)
    ended = 0
    while True:
        pid, _ = os.waitpid(-1, os.WNOHANG) if ended < processes else (0, 0)
        if pid == 0:
            return processes - ended
        ended += 1


async def mem_bomb_many(bench: Bench) -> Finding:
    """Processes within their own limits do not hold more than the total together; the next command runs."""
    total, size = 192, 48
    async with bench.sandbox(with_limits(total_memory_bytes=total * _MIB)) as sandbox:
        try:
            holding = await ask(sandbox, grow_together, processes=8, size=size * _MIB, seconds=20)
        except Unanswered as killed:
            if killed.exit_code != _KILLED:
                raise
            return found(await goes_on(sandbox), "the command was killed as a whole")
        breaches = await goes_on(sandbox)
    if holding * size > total:
        breaches.append(f"8 processes held {holding * size} MiB together, the limit being {total}")
    return found(breaches, f"of 8 processes of {size} MiB, {holding} held theirs under a limit of {total} MiB")


def grow_and_tell(size: int) -> str:
    """Say how soon the kernel would kill this process, then fill memory."""
    import os

    with open("/proc/self/oom_score_adj") as file:
        score = file.read().strip()
    os.write(1, f"{score}\n".encode())
    return score if len(bytearray(b"x") * size) else ""


async def oom_spares_supervisor(bench: Bench) -> Finding:
    """Short of memory, the kernel takes the command; the sandbox and its workspace go on."""
    limits = with_limits(total_memory_bytes=96 * _MIB, memory_bytes=1024 * _MIB)
    async with bench.sandbox(limits) as sandbox:
        await sandbox.write("kept", b"kept")
        stdin = b'{"size": %d}' % (256 * _MIB)
        done = await sandbox.run(command(grow_and_tell), deadline=patience(), timeout_s=30, stdin=stdin)
        score = said(done).split("\n")[0]
        breaches = await goes_on(sandbox)
        if await sandbox.read("kept") != b"kept":
            breaches.append("the workspace has changed")
    if not score.lstrip("-").isdigit() or int(score) <= 0:
        breaches.append(f"its supervisor is as likely to be killed as a command (oom_score_adj {score or 'unknown'})")
    fate = "it was killed" if done.exit_code == _KILLED else "nothing was killed, there being no limit for all together"
    return found(breaches, f"oom_score_adj {score}; {fate}; the sandbox went on")


def fill(folders: list[str], files: int, size: int, most: int = 0) -> dict[str, Any]:
    """Write files into folders until one is refused, and remove them; say how much went into each, and why not more.

    With ``most``, the files are empty and come in batches of 1,000 with a pause.
    """
    import os
    import time

    results: dict[str, Any] = {}
    for folder in folders:
        made, written, why = 0, 0, ""
        try:
            for number in range(most or files):
                if most and number % 1000 == 999:
                    time.sleep(0.05)
                with open(f"{folder}/agentenv-fill-{os.getpid()}-{number}", "wb", buffering=0) as file:
                    made += 1
                    for _ in range(size >> 20):
                        written += file.write(bytes(1 << 20))
        except OSError as error:
            why = error.strerror or str(error)
        for number in range(made):
            os.remove(f"{folder}/agentenv-fill-{os.getpid()}-{number}")
        results[folder] = {"files": made, "mib": written >> 20, "why": why}
    return results


async def _filled(sandbox: Sandbox, folders: dict[str, str], *, limit: int) -> Finding:
    """Try to write twelve MiB into each folder, under a limit in bytes; their names are for the evidence."""
    results = await ask(sandbox, fill, folders=list(folders), files=6, size=2 * _MIB)
    breaches = [
        f"{folders[folder]} took {result['mib']} MiB, the limit being {limit // _MIB}"
        for folder, result in results.items()
        if not result["why"] or result["mib"] * _MIB > limit
    ]
    seen = [f"{folders[folder]}: {result['mib']} MiB, then: {result['why']}" for folder, result in results.items()]
    return found(breaches, "; ".join(seen))


async def tmp_fill(bench: Bench) -> Finding:
    """The folder for temporary files takes no more than its size."""
    async with bench.sandbox() as sandbox:
        place = await ask(sandbox, temporary_folder)
        return await _filled(sandbox, {place: "it"}, limit=LIMITS.tmp_bytes)


def temporary_folder() -> str:
    """Say where programs put temporary files."""
    import tempfile

    return tempfile.gettempdir()


async def dev_shm_fill(bench: Bench) -> Finding:
    """/dev/shm and /dev have a size, or cannot be written."""
    async with bench.sandbox() as sandbox:
        return await _filled(sandbox, {"/dev/shm": "/dev/shm", "/dev": "/dev"}, limit=LIMITS.tmp_bytes)


def write_file(size: int) -> dict[str, Any]:
    """Write one file until it is refused; say how long it is, and why no longer."""
    import os
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    written, why = 0, ""
    with open("one", "wb", buffering=0) as file:
        try:
            while written < size:
                written += file.write(bytes(1 << 20))
        except OSError as error:
            why = error.strerror or str(error)
    os.remove("one")
    return {"mib": written >> 20, "why": why}


async def workspace_fill_one_file(bench: Bench) -> Finding:
    """A file is no longer than its limit."""
    async with bench.sandbox() as sandbox:
        written = await ask(sandbox, write_file, size=LIMITS.file_bytes + 4 * _MIB)
        breaches = await goes_on(sandbox)
    if not written["why"]:
        breaches.append(f"a file of {written['mib']} MiB was written, the limit being {LIMITS.file_bytes // _MIB}")
    return found(breaches, f"{written['mib']} MiB, then: {written['why']}")


async def workspace_fill_many_files(bench: Bench) -> Finding:
    """All files of the workspace together are no larger than its size; what is removed gives room."""
    limit = 6 * _MIB
    async with bench.sandbox(with_limits(workspace_bytes=limit)) as sandbox:
        finding = await _filled(sandbox, {".": "the workspace"}, limit=limit)
        await sandbox.write("room", bytes(1 << 20))
    return finding


async def inode_fill(bench: Bench) -> Finding:
    """The workspace has room for a number of files; who makes more is refused, or ended."""
    async with bench.sandbox(with_limits(workspace_files=_FILES)) as sandbox:
        try:
            filled = (await ask(sandbox, fill, folders=["."], files=0, size=0, most=_MOST_FILES))["."]
            how = filled["why"]
            made = filled["files"]
        except Unanswered as killed:
            how, made = "the command was ended", (await sandbox.usage()).workspace_files
            if killed.exit_code != _KILLED:
                raise
        await shell(sandbox, "find . -name 'agentenv-fill-*' -delete")
        breaches = await goes_on(sandbox)
    if not how or made >= _MOST_FILES:
        breaches.append(f"{made:,} files were made, the limit being {_FILES}")
    return found(breaches, f"{made:,} files under a limit of {_FILES}, then: {how}")


def take_priority() -> list[str]:
    """Try to run before everybody else; say what was let through."""
    import os

    taken: list[str] = []
    try:
        os.nice(-5)
        taken.append("a command made itself more urgent")
    except OSError:
        pass
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        taken.append("a command made itself a real-time process")
    except OSError:
        pass
    return taken


def spin(seconds: float) -> None:
    """Do nothing, quickly; bounded in time."""
    import time

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


async def cpu_hogs(bench: Bench) -> Finding:
    """No command makes itself more urgent; beside four that never rest, the next one runs."""
    async with bench.sandbox() as sandbox:
        breaches = list(await ask(sandbox, take_priority))
        hogs = [await sandbox.spawn(command(spin), deadline=patience()) for _ in range(4)]
        for hog in hogs:
            await hog.write(b'{"seconds": 10}', patience())
            await hog.close_stdin()
        breaches += await goes_on(sandbox)
        await asyncio.gather(*(hog.aclose() for hog in hogs))
    return found(breaches, "a lower nice value and real time were refused; the next command ran beside four hogs")
