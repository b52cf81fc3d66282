"""A background process, seen from the harness: every piece of its output is asked for, so none piles up here."""

from __future__ import annotations

import asyncio
from typing import Literal

from agentenv.core.deadline import Deadline
from agentenv.core.lifetime import finish
from agentenv.core.sandbox_process import BackgroundProcess, ProcessDied
from agentenv.errors import SandboxFault
from agentenv.sandboxes.connection import Answer, Connection, raise_error
from agentenv.sandboxes.supervisor.frames import CHUNK, number, text

_DEATH_S = 3.0
"""For the supervisor to report that a process it was told to kill is gone."""


class SupervisedBackground(BackgroundProcess):
    """One reader and one writer at a time; others wait their turn."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._started = asyncio.Event()
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._pull: asyncio.Future[Answer] | None = None
        """The question for the next piece of output; outlives the reader that asked it."""
        self._taking: asyncio.Future[Answer] | None = None
        """The answer when the last piece of input is taken; outlives the writer."""
        self._stdin_closed = False
        self._closed = False
        self._refusal = b""
        """Why it could not be started, until that is read."""
        self._id, self._death = connection.watch(self._on_started)
        self._death.add_done_callback(self._on_death)

    async def start(self, argv: list[bytes], cwd: bytes, env: list[bytes]) -> None:
        """Start it. A program that cannot be started has died when this returns.

        Raises:
            SandboxFault: The sandbox is gone.
        """
        await self._connection.send({"op": b"spawn", "id": self._id, "argv": argv, "cwd": cwd, "env": env})
        await self._started.wait()
        self._require_sandbox()

    async def read(self, deadline: Deadline) -> tuple[Literal["out", "err"], bytes] | None:
        async with deadline.enforce(), self._reading:
            if self._refusal:
                refusal, self._refusal = self._refusal, b""
                return "err", refusal
            if self._closed:
                return None
            if self._pull is None:
                request, self._pull = self._connection.watch()
                await self._connection.send({"op": b"pull", "id": request, "process": self._id})
            answer = await _answer_to(self._pull)
            self._pull = None
        if self._closed or not (part := text(answer.fields, "part")):
            return None
        return ("out" if part == b"out" else "err"), answer.payload

    async def write(self, data: bytes, deadline: Deadline) -> None:
        async with deadline.enforce(), self._writing:
            if self._stdin_closed or self._closed:
                raise ProcessDied("the process cannot be written to: its stdin was closed")
            self._require_sandbox()
            view = memoryview(data)
            for at in range(0, max(1, len(view)), CHUNK):
                await self._taken()
                await self._put(view[at : at + CHUNK], last=False)
            await self._taken()

    async def close_stdin(self) -> None:
        if self._stdin_closed or self._closed:
            return
        self._stdin_closed = True
        self._require_sandbox()
        # Behind what is queued there, if a writer was given up.
        await self._put(memoryview(b""), last=True)

    async def wait(self, deadline: Deadline) -> int:
        async with deadline.enforce():
            return number((await _answer_to(self._death)).fields, "code")

    @property
    def alive(self) -> bool:
        return not self._death.done() and not self._closed and self._connection.lost is None

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._refusal = b""
            self._connection.cancel(self._id)
        await finish(self._gone(), _DEATH_S)

    async def _gone(self) -> None:
        await asyncio.wait([self._death])

    async def _put(self, piece: memoryview, *, last: bool) -> None:
        request, self._taking = self._connection.watch()
        await self._connection.send({"op": b"put", "id": request, "process": self._id, "last": int(last)}, piece)

    async def _taken(self) -> None:
        """Wait until what was put last is taken.

        Raises:
            ProcessDied: It will not be.
        """
        if self._taking is None:
            return
        try:
            raise_error(await _answer_to(self._taking))
        except BrokenPipeError:
            if self._death.done() and self._connection.lost is None:
                code = number(self._death.result().fields, "code")
                raise ProcessDied(f"the process ended with exit code {code}") from None
            raise ProcessDied("the process closed its stdin, or ended") from None

    def _require_sandbox(self) -> None:
        if self._connection.lost is not None:
            raise SandboxFault(self._connection.lost)

    async def _on_started(self, _answer: Answer) -> None:
        self._started.set()

    def _on_death(self, death: asyncio.Future[Answer]) -> None:
        self._started.set()
        if not death.cancelled() and death.exception() is None:
            why = text(death.result().fields, "why")
            self._refusal = why and why + b"\n"


async def _answer_to(future: asyncio.Future[Answer]) -> Answer:
    """Await an answer that stays to come when the waiting is cancelled."""
    await asyncio.wait([future])
    return future.result()
