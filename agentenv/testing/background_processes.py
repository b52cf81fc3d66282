"""A working fake of a background process, with a pipe that fills."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from agentenv.core.deadline import Deadline
from agentenv.core.sandbox_process import BackgroundProcess, ProcessDied
from agentenv.errors import SandboxFault

if TYPE_CHECKING:
    from agentenv.testing.programs import Scripted

_PIPE = 1 << 16
"""Bytes that a process takes before somebody reads what it wrote."""


class InMemoryBackground(BackgroundProcess):
    """A background process of `InMemorySandbox`: ``cat``, or one that did all it does when it started."""

    def __init__(self, result: Scripted | None, *, lost: Callable[[], bool]) -> None:
        """Make one.

        Args:
            result: What came of it; None is ``cat``, which echoes what it reads until its stdin ends.
            lost: Says whether its sandbox is closed.
        """
        self._lost = lost
        self._echoes = result is None
        self._output: list[tuple[Literal["out", "err"], bytes]] = []
        self._code: int | None = None
        self._stdin_closed = False
        self._closed = False
        self._changed = asyncio.Event()
        if result is not None:
            if result.stdout:
                self._output.append(("out", result.stdout))
            if result.stderr:
                self._output.append(("err", result.stderr))
            self._code = None if result.hangs else result.exit_code

    async def read(self, deadline: Deadline) -> tuple[Literal["out", "err"], bytes] | None:
        async with deadline.enforce():
            while not self._output and self._code is None:
                self._require_sandbox()
                await self._changed.wait()
            self._require_sandbox()
            self._wake()
            return self._output.pop(0) if self._output else None

    async def write(self, data: bytes, deadline: Deadline) -> None:
        self._require_sandbox()
        if self._stdin_closed or self._code is not None:
            raise ProcessDied("the process ended, or its stdin was closed")
        if not self._echoes:
            return
        async with deadline.enforce():
            for at in range(0, len(data), _PIPE):
                while sum(len(piece) for _, piece in self._output) >= _PIPE:
                    await self._changed.wait()
                    self._require_sandbox()
                    if self._code is not None:
                        raise ProcessDied("the process ended")
                self._output.append(("out", data[at : at + _PIPE]))
                self._wake()

    async def close_stdin(self) -> None:
        if self._stdin_closed:
            return
        self._require_sandbox()
        self._stdin_closed = True
        if self._echoes and self._code is None:
            self._code = 0
            self._wake()

    async def wait(self, deadline: Deadline) -> int:
        async with deadline.enforce():
            while self._code is None:
                self._require_sandbox()
                await self._changed.wait()
        self._require_sandbox()
        return self._code

    @property
    def alive(self) -> bool:
        return self._code is None and not self._lost()

    async def aclose(self) -> None:
        self._output.clear()
        self._stdin_closed = True
        self.kill()

    def kill(self) -> None:
        """End it as SIGKILL would."""
        if self._code is None:
            self._code = 137
        self._wake()

    def _require_sandbox(self) -> None:
        if self._lost():
            raise SandboxFault("the sandbox was closed")

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
