"""A container whose processes are children of this one: an outer one, and below it the supervisor's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence

from agentenv.sandboxes.cgroups import Cgroup
from agentenv.sandboxes.host_system import SEARCH_PATH
from agentenv.sandboxes.launching import Container, Launch, MemoryUse

_LAST_WORDS = 2000
_STREAM_BYTES = 1 << 18
_GROUP_TICK_S = 0.001
_EXIT_S = 2.0
"""For the outer process to follow the inner one, before it is killed too."""


class ProcessContainer(Container):
    """The outer process tells who the inner one is, lets it go on only then, and ends when nothing below it is left."""

    def __init__(self, process: subprocess.Popen[bytes], *, told: int, said: int, group: Cgroup | None = None) -> None:
        """Take over a started process.

        Args:
            process: The outer one, in a session of its own.
            told: Descriptor of a file in memory that will say ``{"child-pid": PID}``.
            said: Descriptor of the file in memory that is its stderr.
            group: Removed when all is gone.
        """
        self._process = process
        self._outer = os.pidfd_open(process.pid)
        self._inner = -1
        self._told = told
        self._said = said
        self._group = group

    @classmethod
    def start(
        cls, command: Callable[[int, list[int]], Sequence[str]], *, stream: int, group: Cgroup | None = None
    ) -> ProcessContainer:
        """Start the outer process; blocks for the exec of a small program.

        Args:
            command: Makes its command line of the number of ``told`` and a list, to which it adds the descriptors
                that the process shall inherit beside; they are closed here.
            stream: To be its stdin and stdout.
            group: As in ``__init__``; the program has to enter it itself. Removed if the start fails.

        Raises:
            OSError: It could not be started.
        """
        # Not pipes: the outer process could die of writing to one whose reader died, and leave a child that waits.
        told, said = os.memfd_create("agentenv-told"), os.memfd_create("agentenv-said")
        given: list[int] = []
        try:
            process = subprocess.Popen(
                command(told, given),
                stdin=stream,
                stdout=stream,
                stderr=said,
                pass_fds=[told, *given],
                env={"PATH": SEARCH_PATH, "LANG": "C.UTF-8"},
                start_new_session=True,
            )
            return cls(process, told=told, said=said, group=group)
        except BaseException:
            os.close(told)
            os.close(said)
            if group is not None:
                group.try_to_remove()
            raise
        finally:
            for fd in given:
                os.close(fd)

    def kill(self) -> None:
        self._find_inner()
        # The inner one first: the outer then ends by itself, and by that says that nothing is left.
        with contextlib.suppress(ProcessLookupError):
            if self._inner >= 0:
                signal.pidfd_send_signal(self._inner, signal.SIGKILL)
            elif self._outer >= 0:
                # Before its child is named, that child waits for a word from it, for ever if need be, and is in its
                # process group still.
                os.killpg(self._process.pid, signal.SIGKILL)

    def _find_inner(self) -> None:
        if self._inner >= 0 or self._told < 0:
            return
        with contextlib.suppress(OSError, ValueError, KeyError):  # not said yet, or gone already
            self._inner = os.pidfd_open(json.loads(os.pread(self._told, 4096, 0))["child-pid"])

    async def gone(self) -> None:
        if self._outer < 0:
            return
        try:
            async with asyncio.timeout(_EXIT_S):
                await _readable(self._outer)
        except TimeoutError:
            self._process.kill()
            await _readable(self._outer)
        self.kill()  # where it was named between the first look and the end of who named it
        self._process.poll()
        if self._inner >= 0:
            await _readable(self._inner)
        else:
            await _group_gone(self._process.pid)
        if self._group is not None:
            await self._group.remove()
        self._words = self.last_words()
        for fd in (self._outer, self._inner, self._told, self._said):
            if fd >= 0:
                os.close(fd)
        self._outer = self._inner = self._told = self._said = -1

    def last_words(self) -> str:
        if self._said < 0:
            return self._words
        size = os.fstat(self._said).st_size
        return os.pread(self._said, _LAST_WORDS, max(0, size - _LAST_WORDS)).decode(errors="replace").strip()

    def memory(self) -> MemoryUse | None:
        return None if self._group is None else self._group.memory()


async def launched(start: Callable[[int], ProcessContainer]) -> Launch:
    """Start a container that is spoken to over a socket, whose other end ``start`` makes its stdin and stdout.

    Raises:
        OSError, SandboxFault: As ``start``.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_STREAM_BYTES)
        # Nothing is awaited from here on, so that no cancellation comes between a process and who ends it.
        try:
            container = start(theirs.fileno())
        except BaseException:
            writer.close()
            raise
    return Launch(reader=reader, writer=writer, container=container)


def memory_file(content: bytes, given: list[int]) -> int:
    """Put bytes where a started program can read them by a descriptor; it is added to ``given``."""
    fd = os.memfd_create("agentenv")
    given.append(fd)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def open_this_process(given: list[int]) -> int:
    """Open this process, to be watched for its end; the descriptor is added to ``given``."""
    fd = os.pidfd_open(os.getpid())
    given.append(fd)
    return fd


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    loop.add_reader(fd, lambda: ended.done() or ended.set_result(None))
    try:
        await ended
    finally:
        loop.remove_reader(fd)


async def _group_gone(group: int) -> None:
    """Wait for the end of a process group that was killed and whose members are nobody's to wait for."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody, or by now somebody else
        while True:
            os.killpg(group, 0)
            await asyncio.sleep(_GROUP_TICK_S)
