"""A kept process, seen from the harness."""

from __future__ import annotations

import asyncio

from agentenv.core.deadline import Deadline
from agentenv.core.lifetime import finish
from agentenv.core.sandbox_process import ProcessDied, SandboxProcess
from agentenv.errors import SandboxFault
from agentenv.sandboxes.connection import Answer, Connection, raise_error
from agentenv.sandboxes.supervisor.frames import MAX_PAYLOAD, number, text

_DEATH_S = 3.0
"""For the supervisor to report that a process it was told to kill is gone."""


class SupervisedProcess(SandboxProcess):
    """One question at a time; others wait their turn."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._turn = asyncio.Lock()
        self._started = asyncio.Event()
        self._killed = ""
        """Why we ended it ourselves; empty if we did not."""
        self._id, self._death = connection.watch(self._on_started)
        self._death.add_done_callback(self._on_death)

    async def start(self, argv: list[bytes], cwd: bytes, env: list[bytes]) -> None:
        """Start it. A program that cannot be started has died when this returns.

        Raises:
            SandboxFault: The sandbox is gone.
        """
        await self._connection.send({"op": b"start", "id": self._id, "argv": argv, "cwd": cwd, "env": env})
        await self._started.wait()
        if self._connection.lost is not None:
            raise SandboxFault(self._connection.lost)

    async def request(self, line: bytes, deadline: Deadline) -> bytes:
        if b"\n" in line or len(line) >= MAX_PAYLOAD:
            raise ValueError(f"a request is one line of less than {MAX_PAYLOAD} bytes, not {len(line)} with line ends")
        async with deadline.enforce(), self._turn:
            if not self.alive:
                raise self._end()
            try:
                answer = await self._ask(line)
            except BaseException:
                # Its answer may still come, and would be taken for the next one.
                self._kill("a request to it was given up")
                raise
        if text(answer.fields, "kind") == b"died":
            # Where it ended before the question, that report came first and knows more.
            raise self._end() if self._death.done() else _died(answer, self._killed)
        return raise_error(answer).payload

    async def _ask(self, line: bytes) -> Answer:
        question, future = self._connection.watch()
        try:
            await self._connection.send({"op": b"ask", "id": question, "process": self._id}, line)
            return await future
        finally:
            self._connection.forget(question)

    @property
    def alive(self) -> bool:
        return not self._death.done() and not self._killed and self._connection.lost is None

    async def aclose(self) -> None:
        self._kill("it was closed")
        await finish(self._gone(), _DEATH_S)

    async def _gone(self) -> None:
        await asyncio.wait([self._death])

    def _kill(self, why: str) -> None:
        if self.alive:
            self._killed = why
            self._connection.cancel(self._id)

    def _end(self) -> Exception:
        if self._connection.lost is not None:
            return SandboxFault(self._connection.lost)
        if self._death.done():
            return _died(self._death.result(), self._killed)
        return ProcessDied(f"the process was killed: {self._killed}")

    async def _on_started(self, _answer: Answer) -> None:
        self._started.set()

    def _on_death(self, _death: asyncio.Future[Answer]) -> None:
        self._started.set()


def _died(answer: Answer, killed: str) -> ProcessDied:
    why = text(answer.fields, "why").decode("utf-8", "replace") or killed
    said = answer.payload.decode("utf-8", "replace").strip()
    return ProcessDied(
        f"the process ended with exit code {number(answer.fields, 'code')}"
        f"{' (' + why + ')' if why else ''}{'; its last words: ' + said if said else ''}"
    )
