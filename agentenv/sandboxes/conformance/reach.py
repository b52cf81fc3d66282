"""Checks of what a command can see and reach: files, secrets, processes, the network, sockets."""

# What runs inside is kept to the modules that start quickest.
# ruff: noqa: PTH107, PTH115, PTH123, PTH208

from __future__ import annotations

import json
from typing import Any

from agentenv.core.sandbox import NetworkAccess
from agentenv.sandboxes.conformance.check import Bench, Finding, found, patience
from agentenv.sandboxes.conformance.inside import ask, command, processes_with, said, shell
from agentenv.sandboxes.conformance.other_harness import in_another_harness
from agentenv.sandboxes.conformance.strangers import bystanders, reaches_strangers, sleeper, stranger


def readable(paths: list[str]) -> list[str]:
    """Give those paths that can be opened to be read."""
    import os

    opened: list[str] = []
    for path in paths:
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            opened.append(path)
        except OSError:
            continue
    return opened


async def etc_shadow(bench: Bench) -> Finding:
    """The machine's password hashes and root's folder cannot be read."""
    async with bench.sandbox() as sandbox:
        opened = await ask(sandbox, readable, paths=["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/root/.ssh"])
    return found([f"{path} can be read" for path in opened], "none of them can be opened")


async def host_env_secret(bench: Bench) -> Finding:
    """What the harness has in its environment and its arguments can be read nowhere inside."""
    seen = await in_another_harness(bench, "secret")
    return found([f"it is in {place}" for place in seen], "no environ and no cmdline that can be read has it")


def write_where(folders: list[str], files: list[str]) -> list[str]:
    """Give the folders a file can be made in and the files that can be opened to be written; leave all as it was."""
    import os

    written: list[str] = []
    for folder in folders:
        path = f"{folder}/agentenv-probe-{os.getpid()}"
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            written.append(folder)
            os.remove(path)
        except OSError:
            continue
    for path in files:
        try:
            os.close(os.open(path, os.O_WRONLY))
            written.append(path)
        except OSError:
            continue
    return written


_FOLDERS = [
    "/", "/usr", "/usr/bin", "/usr/lib", "/bin", "/etc", "/run", "/dev", "/proc", "/proc/sys/kernel", "/sys", "/var",
    "/var/lib", "/boot", "/root", "/home", "/opt", "/srv", "/mnt",
]  # fmt: skip
_FILES = [
    "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/vm/overcommit_memory", "/etc/passwd",
    "/etc/hosts", "/usr/bin/env",
]  # fmt: skip


async def write_outside(bench: Bench) -> Finding:
    """Nothing but the workspace and the temporary files can be written, not even what everybody may."""
    with bystanders(bench.mark()) as things:
        async with bench.sandbox() as sandbox:
            mine = [things.folder], [f"{things.folder}/file"]
            written = await ask(sandbox, write_where, folders=[*mine[0], *_FOLDERS], files=[*mine[1], *_FILES])
        names = {things.folder: "a folder of this machine", mine[1][0]: "a file of this machine"}
    return found(
        [f"{names.get(path, path)} can be written" for path in written],
        f"{len(_FOLDERS) + len(_FILES)} places of the system, a folder and a file open to everybody: all refused",
    )


async def host_pids_visible(bench: Bench) -> Finding:
    """No process of the machine is seen, and none can be signalled."""
    mark = bench.mark()
    async with sleeper(mark) as pid, bench.sandbox() as sandbox:
        seen = await ask(sandbox, processes_with, word=mark)
        count = await ask(sandbox, count_processes)
    breaches = [f"a process of the harness is seen, command line and all ({count} processes in sight)"] if seen else []
    del pid
    return found(breaches, f"{count} processes in sight, none of them the harness's")


def count_processes() -> int:
    """Count the processes in sight."""
    import os

    return sum(map(str.isdigit, os.listdir("/proc")))


def connect_out(port: int) -> list[str]:
    """Try to reach something by address; say what there is. Nothing is sent but to this machine's loopback."""
    import socket

    reached: list[str] = []

    def attempt(what: str, family: int, kind: int, address: Any) -> None:
        try:
            with socket.socket(family, kind) as probe:
                probe.settimeout(3)
                probe.connect(address)
            reached.append(what)
        except OSError:
            pass

    attempt("a service on the loopback of the machine", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port))
    # Connecting a datagram socket looks for a route and sends nothing.
    attempt("a route to the internet", socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 9))
    attempt("a route to the internet (IPv6)", socket.AF_INET6, socket.SOCK_DGRAM, ("2001:db8::1", 9))
    attempt("a route to the metadata service of clouds", socket.AF_INET, socket.SOCK_DGRAM, ("169.254.169.254", 80))
    if not reached:
        try:
            socket.getaddrinfo("example.org", 80)
            reached.append("a name server")
        except OSError:
            pass
    return reached


async def net_egress(bench: Bench) -> Finding:
    """There is no route, no name server, no loopback of the machine; and the sandbox measures it so."""
    with bystanders(bench.mark()) as things:
        async with bench.sandbox() as sandbox:
            reached = await ask(sandbox, connect_out, port=things.port)
            state = await sandbox.network_state()
    breaches = [f"there is {what}" for what in reached]
    if (state.access is NetworkAccess.NONE) == bool(reached):
        breaches.append(f"yet the sandbox measured {state.access}")
    return found(breaches, f"nothing was reached; measured: {state.access}")


def connect_unix(paths: list[str], abstract: str) -> list[str]:
    """Give those sockets that can be connected to."""
    import socket

    reached: list[str] = []
    for address in (f"\0{abstract}", *paths):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            try:
                with socket.socket(socket.AF_UNIX, kind) as probe:
                    probe.settimeout(3)
                    probe.connect(address)
                reached.append(address)
            except OSError:
                continue
    return reached


_SOCKETS = [
    "/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
    "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/journal/socket", "/dev/log",
]  # fmt: skip


async def unix_sockets(bench: Bench) -> Finding:
    """No socket of the machine can be connected to, by path or by name."""
    with bystanders(bench.mark()) as things:
        async with bench.sandbox() as sandbox:
            paths = [things.socket, *_SOCKETS]
            reached = await ask(sandbox, connect_unix, paths=paths, abstract=things.abstract)
        names = {things.socket: "one in a folder of this machine", f"\0{things.abstract}": "one without a path"}
    return found(
        [f"{names.get(path, path)} can be connected to" for path in reached],
        f"{len(_SOCKETS)} that services have, one that everybody may connect to, one without a path: all refused",
    )


def open_descriptors() -> dict[str, str]:
    """Say what is open beside the three streams."""
    import os

    descriptors: dict[str, str] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2:
                descriptors[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # that of the listing itself
    return descriptors


async def inherited_descriptors(bench: Bench) -> Finding:
    """A command has its three streams open, and nothing of the supervisor's or the harness's."""
    async with bench.sandbox() as sandbox:
        opened = await ask(sandbox, open_descriptors)
        kept = await sandbox.start(command(open_descriptors), deadline=patience())
        opened_there = json.loads(await kept.request(b"{}", patience()))
    breaches = [f"{target} is open in a command" for target in opened.values()]
    breaches += [f"{target} is open in a kept process" for target in opened_there.values()]
    return found(breaches, "0, 1 and 2, in commands and kept processes")


def look_into(pids: list[int], word: str) -> list[str]:
    """Try to read and to trace processes: those in whose command line a word is, or all if there is none."""
    import contextlib
    import ctypes
    import os

    libc = ctypes.CDLL(None, use_errno=True)
    seen: list[str] = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if word.encode() not in file.read():
                    continue
        except OSError:
            continue
        for what in ("environ", "mem", "maps", "fd/0", "root/etc", "cwd/"):
            with contextlib.suppress(OSError):
                if what.endswith(("/etc", "/")):
                    os.listdir(f"/proc/{pid}/{what}")
                else:
                    os.close(os.open(f"/proc/{pid}/{what}", os.O_RDONLY | os.O_NONBLOCK))
                seen.append(f"/proc/PID/{what}".rstrip("/"))
        if libc.ptrace(0x4206, pid, 0, 0) == 0:  # PTRACE_SEIZE: stops nothing, and ends with this process
            seen.append("its memory and registers, by tracing it")
    return seen


def watchers() -> list[int]:
    """Give whoever may watch over this process: its ancestors, as far as they are seen."""
    import os

    pids: list[int] = []
    pid = os.getppid()
    while pid > 0 and pid not in pids:
        pids.append(pid)
        try:
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            break
    return pids


async def ptrace_other(bench: Bench) -> Finding:
    """Neither the supervisor nor a process outside can be traced, nor its memory or environment read."""
    async with bench.sandbox() as sandbox, stranger(bench) as other:
        above = await ask(sandbox, watchers)
        breaches = [f"of the supervisor: {what}" for what in await ask(sandbox, look_into, pids=above, word="")]
        outside = await ask(sandbox, look_into, pids=[other.pid], word=other.mark)
        breaches += [f"of another sandbox: {what}" for what in outside if "root" not in what and "cwd" not in what]
    return found(breaches, f"environ, mem, maps, descriptors and tracing were refused for {len(above)} above it")


async def proc_links_of_others(bench: Bench) -> Finding:
    """/proc/PID/root and /proc/PID/cwd of another sandbox lead nowhere."""
    async with bench.sandbox() as sandbox, stranger(bench) as other:
        outside = await ask(sandbox, look_into, pids=[other.pid], word=other.mark)
    return found(
        [f"{what} of another sandbox can be listed" for what in outside if "/root" in what or "/cwd" in what],
        "they are not there, or closed",
    )


async def sandboxes_apart(bench: Bench) -> Finding:
    """Two sandboxes see neither each other's processes nor files, and no signal goes from one to the other."""
    async with bench.sandbox() as sandbox, stranger(bench) as other:
        await other.sandbox.write("secret", b"of the other")
        await shell(other.sandbox, 'echo other > "${TMPDIR:-/tmp}/of-the-other"')
        breaches: list[str] = []
        if await ask(sandbox, processes_with, word=other.mark):
            breaches.append("its processes are seen")
        if reached := await reaches_strangers(bench, sandbox):
            breaches.append(reached)
        if "of-the-other" in said(await shell(sandbox, 'ls -a /tmp "${TMPDIR:-/tmp}" . 2>/dev/null')):
            breaches.append("its temporary files are seen")
        if "secret" in {each.name for each in await sandbox.list()}:
            breaches.append("its workspace is seen")
        if await other.ask() is None:
            breaches.append("its process has ended")
        await shell(other.sandbox, 'rm -f "${TMPDIR:-/tmp}/of-the-other"')
    return found(breaches, "neither processes nor files of the other were seen; no signal reached it")
