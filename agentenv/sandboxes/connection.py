"""The harness's end of the stream to a supervisor: requests out, answers to whoever asked."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentenv.errors import SandboxFault
from agentenv.sandboxes.launching import Launch
from agentenv.sandboxes.supervisor.frames import (
    CHUNK,
    PREFIX,
    FrameError,
    decode,
    encode,
    number,
    sizes,
    text,
)

if TYPE_CHECKING:
    from agentenv.sandboxes.supervisor.frames import Fields, Value

_WRITE_AHEAD = 1 << 20
"""Bytes in our own buffer at which a sender waits."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One frame from the supervisor."""

    fields: Fields
    payload: bytes


DataHandler = Callable[[Answer], Awaitable[None]]
"""Takes a piece of a longer answer. While it works nothing else is read: that is what holds back a flood."""


class _Pending:
    """A request that waits for the end of its answer."""

    __slots__ = ("future", "on_data")

    def __init__(self, on_data: DataHandler | None) -> None:
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.on_data = on_data

    def fail(self, error: Exception) -> None:
        """Tell whoever waits; if nobody does, whoever asks next is told."""
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # else the loop would complain that nobody looked


class Connection:
    """One per sandbox. A single task reads; whoever asked holds a future, found by the id of the request."""

    def __init__(self, launch: Launch) -> None:
        self._reader = launch.reader
        self._writer = launch.writer
        self._container = launch.container
        self._pending: dict[int, _Pending] = {}
        self._last_id = 0
        self._lost: str | None = None
        """Why nothing more can be asked."""
        self._task = asyncio.ensure_future(self._read())

    @property
    def lost(self) -> str | None:
        """Why nothing more can be asked; None while it can."""
        return self._lost

    def watch(self, on_data: DataHandler | None = None) -> tuple[int, asyncio.Future[Answer]]:
        """Choose an id, and await what comes under it.

        Raises:
            SandboxFault: The sandbox is gone.
        """
        if self._lost is not None:
            raise SandboxFault(self._lost)
        self._last_id += 1
        pending = self._pending[self._last_id] = _Pending(on_data)
        return self._last_id, pending.future

    def forget(self, id: int) -> None:
        """Drop what still comes under an id."""
        self._pending.pop(id, None)

    async def send(self, fields: Fields, payload: bytes | memoryview = b"") -> None:
        """Send one frame.

        Raises:
            SandboxFault: The sandbox is gone.
        """
        if self._lost is not None:
            raise SandboxFault(self._lost)
        self._writer.write(encode(fields, payload))
        if self._writer.transport.get_write_buffer_size() > _WRITE_AHEAD:
            with contextlib.suppress(ConnectionError):  # the reading task finds out, and says why
                await self._writer.drain()

    async def ask(self, op: str, fields: Fields, payload: bytes = b"", *, on_data: DataHandler | None = None) -> Answer:
        """Send a request, its payload in as many frames as that takes, and await the end of its answer.

        Cancelling it tells the supervisor to give up too.

        Raises:
            SandboxFault: The sandbox is gone.
            OSError: What the supervisor was refused by its kernel.
        """
        request, future = self.watch(on_data)
        try:
            await self._send_pieces(request, op, fields, payload, future)
            answer = await future
        except BaseException:
            self.give_up(request)
            raise
        return raise_error(answer)

    async def _send_pieces(
        self, id: int, op: str, fields: Fields, payload: bytes, future: asyncio.Future[Answer]
    ) -> None:
        view = memoryview(payload)
        head: dict[str, Value] = {"op": op.encode(), "id": id, "more": int(len(view) > CHUNK), **fields}
        await self.send(head, view[:CHUNK])
        for at in range(CHUNK, len(view), CHUNK):
            if future.done():
                return  # refused, or over before it read all
            rest: dict[str, Value] = {"op": b"feed", "id": id, "target": id, "more": int(at + CHUNK < len(view))}
            await self.send(rest, view[at : at + CHUNK])

    def give_up(self, target: int) -> None:
        """Let go of a request, on both ends."""
        self.forget(target)
        self.cancel(target)

    def cancel(self, target: int) -> None:
        """Tell the supervisor to give up a request; a process that it started is killed."""
        self.tell({"op": b"cancel", "target": target})

    def tell(self, fields: Fields, payload: bytes | memoryview = b"") -> None:
        """Send one frame whose answer nobody awaits, at once; nothing when the sandbox is gone."""
        if self._lost is None:
            self._last_id += 1
            self._writer.write(encode({"id": self._last_id, **fields}, payload))

    async def aclose(self) -> None:
        """Stop reading and fail whoever still waits. May be called twice."""
        self._lose("the sandbox was closed")
        self._task.cancel()
        self._writer.transport.abort()
        await asyncio.wait([self._task])
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self) -> None:
        try:
            while True:
                header, payload = sizes(await self._reader.readexactly(PREFIX))
                fields = decode(await self._reader.readexactly(header))
                await self._deliver(number(fields, "id"), Answer(fields, await self._reader.readexactly(payload)))
        except (asyncio.IncompleteReadError, OSError):
            words = self._container.last_words()
            self._lose(f"the sandbox ended unexpectedly{': ' + words if words else ''}")
        except FrameError as error:
            self._lose(f"the sandbox's supervisor broke its protocol: {error}")
        finally:
            self._lose("the sandbox's connection ended")

    async def _deliver(self, id: int, answer: Answer) -> None:
        pending = self._pending.get(id)
        if pending is None:
            if not 0 < id <= self._last_id:
                raise FrameError(f"an answer to request {id}, which was never sent")
            return  # nobody waits any more
        if text(answer.fields, "kind") != b"data":
            del self._pending[id]
            if not pending.future.done():
                pending.future.set_result(answer)
        elif pending.on_data is not None:
            try:
                await pending.on_data(answer)
            except Exception as error:  # noqa: BLE001 - it is the asker's, who gets it
                self.forget(id)
                pending.fail(error)

    def _lose(self, why: str) -> None:
        if self._lost is None:
            self._lost = why
        for pending in self._pending.values():
            pending.fail(SandboxFault(self._lost))
        self._pending.clear()


def raise_error(answer: Answer) -> Answer:
    """Give the answer back, unless it says that the kernel refused.

    Raises:
        OSError: It does; the class is the one the number stands for (``FileNotFoundError``, …).
    """
    if text(answer.fields, "kind") == b"error":
        code = number(answer.fields, "errno")
        raise OSError(code, text(answer.fields, "text").decode("utf-8", "replace") or os.strerror(code))
    return answer
