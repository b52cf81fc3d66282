"""Checks of the files API: what commands leave in the workspace fools nobody who reads it."""

# Temporary folders named here are the sandbox's own.
# What runs inside is kept to the modules that start quickest.
# ruff: noqa: S108, PTH102, PTH104, PTH123, PTH211

from __future__ import annotations

import hashlib
from collections.abc import Awaitable
from typing import Any

from agentenv.core.blobs import BlobSink, BlobSource, BlobWriter
from agentenv.core.deadline import Deadline
from agentenv.errors import DamagedJournal
from agentenv.records.messages import Spill
from agentenv.sandboxes.conformance.check import Bench, Finding, found, patience
from agentenv.sandboxes.conformance.inside import ask, command, goes_on, shell

_SOON_S = 30.0


class _Hashed(BlobWriter):
    """Keeps the hash of what is written."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self._size += len(chunk)

    def commit(self) -> Spill:
        return Spill(sha256=self._hash.hexdigest(), size_bytes=self._size)

    def discard(self) -> None: ...


class _Nowhere(BlobSink, BlobSource):
    """Takes snapshots and keeps nothing of them."""

    def open(self) -> BlobWriter:
        return _Hashed()

    def put(self, content: bytes) -> Spill:
        writer = _Hashed()
        writer.write(content)
        return writer.commit()

    def get(self, sha256: str) -> bytes:
        raise DamagedJournal(f"The blob {sha256} was not kept")


async def _refusal(call: Awaitable[Any]) -> str:
    """Give the name of the exception that a call raises; empty if it gives something."""
    try:
        await call
    except OSError as error:
        return type(error).__name__
    return ""


def link_to(targets: list[str]) -> None:
    """Make symbolic links, named by their number."""
    import os

    for number, target in enumerate(targets):
        os.symlink(target, str(number))


async def symlink_escape_made_inside(bench: Bench) -> Finding:
    """A link out of the workspace is not followed by the harness: not to read, to write, to list, nor in a snapshot."""
    targets = ["/etc/passwd", "/etc/shadow", "/", "/proc/self/environ", "/proc/1/environ", "../..", "/tmp"]
    async with bench.sandbox() as sandbox:
        await sandbox.write("real", b"content")
        await ask(sandbox, link_to, targets=targets)
        breaches: list[str] = []
        for number, target in enumerate(targets):
            calls = {
                "read": sandbox.read(str(number)),
                "written": sandbox.write(str(number), b""),
                "listed": sandbox.list(str(number)),
                "read below": sandbox.read(f"{number}/passwd"),
            }
            refusals = {how: await _refusal(call) for how, call in calls.items()}
            breaches += [
                f"a link to {target} was {how}: {why or 'done'}"
                for how, why in refusals.items()
                if why != "PermissionError"
            ]
        if set(await sandbox.snapshot(_Nowhere())) != {"real"}:
            breaches.append("a snapshot has more than the one file")
    return found(breaches, f"{len(targets)} links, each PermissionError in four ways; the snapshot has the one file")


def swap(seconds: float) -> None:
    """Swap a folder for a link out, again and again; bounded in time."""
    import os
    import time

    os.symlink("/etc", "out")
    os.write(1, b"swapping\n")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for old, new in (("d", "e"), ("out", "d"), ("d", "out"), ("e", "d")):
            os.rename(old, new)


async def symlink_race(bench: Bench) -> Finding:
    """While a folder is swapped for a link out, no read gives what lies outside."""
    async with bench.sandbox() as sandbox:
        await sandbox.write("d/passwd", b"inside")
        async with await sandbox.spawn(command(swap), deadline=patience()) as swapping:
            await swapping.write(b'{"seconds": 20}', patience())
            await swapping.close_stdin()
            await swapping.read(patience())
            inside = outside = refused = 0
            for _ in range(400):
                try:
                    content = await sandbox.read("d/passwd")
                except OSError:
                    refused += 1
                else:
                    inside, outside = inside + (content == b"inside"), outside + (content != b"inside")
    return found(
        [f"{outside} of 400 reads gave another file"] if outside else [],
        f"of 400 reads {inside} gave the file inside, {refused} were refused",
    )


def link_hard(paths: list[str]) -> list[str]:
    """Make hard links to files in the workspace; give those that were possible."""
    import os

    linked: list[str] = []
    for number, path in enumerate(paths):
        try:
            os.link(path, f"hard{number}")
            linked.append(path)
        except OSError:
            continue
    return linked


async def hardlink_escape(bench: Bench) -> Finding:
    """No file of the system can be linked into the workspace."""
    paths = ["/usr/bin/env", "/etc/passwd", "/etc/hosts", "/proc/self/environ", "/dev/null"]
    async with bench.sandbox() as sandbox:
        linked = await ask(sandbox, link_hard, paths=paths)
    return found([f"{path} was linked" for path in linked], f"{len(paths)} files, each refused")


def make_special() -> list[str]:
    """Make files that are none; give what could be made."""
    import os
    import socket

    made: list[str] = []
    try:
        os.mkfifo("fifo")
        made.append("fifo")
    except OSError:
        pass
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("socket")
        made.append("socket")
    except OSError:
        pass
    return made


async def fifo_and_special(bench: Bench) -> Finding:
    """Reading or writing a FIFO, a socket or a folder is an error at once; nobody waits for its other end."""
    async with bench.sandbox() as sandbox:
        made = await ask(sandbox, make_special)
        await sandbox.write("folder/f", b"")
        kinds = {each.name: each.kind for each in await sandbox.list()}
        breaches = [f"a {name} is listed as {kinds[name]}" for name in made if kinds[name] != "other"]
        for name in [*made, "folder"]:
            async with Deadline.after(_SOON_S, f"reading and writing a {name}").enforce():
                refusals = [await _refusal(sandbox.read(name)), await _refusal(sandbox.write(name, b"x"))]
            breaches += [f"a {name} was read or written"] if not all(refusals) else []
    return found(breaches, f"{', '.join([*made, 'folder'])}: each an error at once")


def make_sparse(size: int) -> str:
    """Make a file that says it is so long; say why not."""
    import os
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file = os.open("sparse", os.O_CREAT | os.O_RDWR)
    try:
        os.truncate(file, size)
    except OSError as error:
        return error.strerror or str(error)
    return ""


async def sparse_1tb(bench: Bench) -> Finding:
    """A file that is a terabyte by its length is refused, or read no further than was asked for."""
    async with bench.sandbox() as sandbox:
        refused = await ask(sandbox, make_sparse, size=1 << 40)
        content = await sandbox.read("sparse", max_bytes=1000)
        sizes = {each.name: each.size_bytes for each in await sandbox.list()}
        breaches = await goes_on(sandbox)
    if not refused and (len(content), sizes["sparse"]) != (1000, 1 << 40):
        breaches.append(f"{len(content)} bytes were read of a file listed with {sizes['sparse']}")
    return found(breaches, f"refused: {refused}" if refused else "1,000 bytes were read, a terabyte listed")


def make_deep(levels: int) -> int:
    """Make folders in each other; say how many."""
    import os

    made = 0
    try:
        for _ in range(levels):
            os.mkdir("d")
            os.chdir("d")
            made += 1
        with open("bottom", "w") as file:
            file.write("x")
    except OSError:
        pass
    return made


async def deep_tree(bench: Bench) -> Finding:
    """Three thousand folders in each other can be listed, stored, removed, and closed upon."""
    async with bench.sandbox() as sandbox:
        made = await ask(sandbox, make_deep, levels=3000)
        breaches = [] if [each.name for each in await sandbox.list()] == ["d"] else ["the first is not listed"]
        refused = await _refusal(sandbox.snapshot(_Nowhere()))
        await sandbox.restore({}, _Nowhere())
        if await sandbox.list():
            breaches.append("they are not gone when the workspace is made empty")
        await ask(sandbox, make_deep, levels=1100)  # more than Python functions may call each other
        breaches += await goes_on(sandbox)
    stored = f"the snapshot was refused ({refused})" if refused else "stored"
    return found(breaches, f"{made:,} folders: listed, {stored}, removed")


def make_named(names: list[str]) -> None:
    """Make files whose names are given as hexadecimal bytes, with their name as content."""
    import os

    for name in names:
        file = os.open(bytes.fromhex(name), os.O_CREAT | os.O_WRONLY)
        os.write(file, bytes.fromhex(name))


async def odd_names(bench: Bench) -> Finding:
    """Names of any bytes are listed and read without loss: line ends, no UTF-8, options, 255 bytes."""
    names = [b"-rf", b"a\nb", b"caf\xe9", b"\xff\xfe", b" ", b"\t", b"*", b"\x1b[31m", "ü€😀".encode(), b"n" * 255]
    async with bench.sandbox() as sandbox:
        await ask(sandbox, make_named, names=[name.hex() for name in names])
        listed = {each.name.encode("utf-8", "surrogateescape") for each in await sandbox.list()}
        breaches = [f"{name!r:.40} is not listed" for name in names if name not in listed]
        read = {name: await sandbox.read(name.decode("utf-8", "surrogateescape")) for name in names}
        breaches += [f"{name!r:.40} is read as something else" for name, content in read.items() if content != name]
        stored = await sandbox.snapshot(_Nowhere())
        if {path.encode("utf-8", "surrogateescape") for path in stored} != set(names):
            breaches.append("a snapshot has other names")
    return found(breaches, f"{len(names)} of them listed, read and stored as they are")


_BAD_PATHS = {
    "..": "PermissionError",
    "../x": "PermissionError",
    "a/../../x": "PermissionError",
    "/etc/passwd": "PermissionError",
    "/": "PermissionError",
    "/proc/self/environ": "PermissionError",
    "a\0b": "",
    "": "",
    "x" * 300: "",
    "x/" * 3000: "",
    "\ud800": "",
}
"""Path to the exception it must raise; empty is any OSError."""


async def path_strings(bench: Bench) -> Finding:
    """Paths that lead out, or that no file can have, are errors of the files API and cost the sandbox nothing."""
    async with bench.sandbox() as sandbox:
        await sandbox.write("a/f", b"")
        breaches: list[str] = []
        for path, expected in _BAD_PATHS.items():
            refusals = [await _refusal(sandbox.read(path)), await _refusal(sandbox.write(path, b""))]
            if not all(refusals) or (expected and set(refusals) != {expected}):
                breaches.append(f"{path!r:.30}: {' and '.join(why or 'no error' for why in refusals)}")
        breaches += await goes_on(sandbox)
    return found(breaches, f"{len(_BAD_PATHS)} paths (.., absolute, NUL, 6,000 characters …), each refused")


async def workspace_closed(bench: Bench) -> Finding:
    """A workspace at mode 000 locks out neither the next command nor the harness."""
    async with bench.sandbox() as sandbox:
        await sandbox.write("f", b"x\n")
        await shell(sandbox, "chmod 000 .")
        breaches = [] if await sandbox.read("f") == b"x\n" else ["the harness reads something else"]
        await shell(sandbox, "chmod 000 .")
        breaches += await goes_on(sandbox)
        await shell(sandbox, "chmod 000 .")
        if set(await sandbox.snapshot(_Nowhere())) != {"f"}:
            breaches.append("the snapshot does not have the file")
    return found(breaches, "read, used and stored all the same")
