"""The connections out of one sandbox, carried over its supervisor's stream to a proxy in this process."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from agentenv.sandboxes.connection import Answer, Connection, raise_error
from agentenv.sandboxes.egress import EgressProxy
from agentenv.sandboxes.supervisor.carrying import WINDOW
from agentenv.sandboxes.supervisor.frames import CHUNK, number, text

_log = logging.getLogger(__name__)


class EgressLink:
    """One per sandbox with a network; its owner closes it."""

    def __init__(self, connection: Connection, proxy: EgressProxy) -> None:
        self._connection = connection
        self._proxy = proxy
        self._streams: dict[int, _Carried] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def open(self) -> int:
        """Have the supervisor listen; give the port inside.

        Raises:
            SandboxFault: The sandbox is gone.
            OSError: It cannot listen there.
        """
        request, refusal = self._connection.watch(self._on_frame)
        await self._connection.send({"op": b"listen", "id": request})
        await asyncio.wait([self._listening, refusal], return_when=asyncio.FIRST_COMPLETED)
        if not self._listening.done():
            raise_error(refusal.result())
        return self._listening.result()

    async def aclose(self) -> None:
        """End every connection. May be called twice."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def say(self, carried: int, what: bytes, payload: bytes | memoryview = b"", *, count: int = 0) -> None:
        """Tell the supervisor about a connection; nothing once the sandbox is gone."""
        self._connection.tell({"op": b"carry", "connection": carried, "what": what, "n": count}, payload)

    async def _on_frame(self, answer: Answer) -> None:
        """Take note; never waits, since everything else of the sandbox would wait with it."""
        what, carried = text(answer.fields, "what"), number(answer.fields, "connection")
        if what == b"listening":
            self._listening.set_result(number(answer.fields, "n"))
        elif self._closed:
            return
        elif what == b"open":
            self._streams[carried] = stream = _Carried(self, carried)
            task = asyncio.ensure_future(self._serve(carried, stream))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif (stream := self._streams.get(carried)) is not None:
            stream.told(what, answer.payload, number(answer.fields, "n"))

    async def _serve(self, carried: int, stream: _Carried) -> None:
        try:
            await self._proxy.serve(stream)
            await stream.flushed()
        except ConnectionError:
            pass  # the process inside has gone away
        except Exception:  # noqa: BLE001 - of one connection; the sandbox and its others go on
            _log.exception("a connection out of a sandbox was broken off")
        finally:
            self._streams.pop(carried, None)
            self.say(carried, b"gone")


class _Carried:
    """One connection; a `agentenv.sandboxes.egress.Stream`."""

    def __init__(self, link: EgressLink, carried: int) -> None:
        self._link = link
        self._carried = carried
        self._pieces: deque[bytes] = deque()
        self._ended = False
        self._gone = False
        self._window = WINDOW
        self._changed = asyncio.Event()

    def told(self, what: bytes, payload: bytes, count: int) -> None:
        """Take note of what the supervisor says."""
        if what == b"data":
            self._pieces.append(payload)
        elif what == b"taken":
            self._window += count
        elif what == b"eof":
            self._ended = True
        else:
            self._gone = True
        self._changed.set()

    async def read(self) -> bytes:
        while not self._pieces and not self._ended:
            await self._change()
        if not self._pieces:
            return b""
        piece = self._pieces.popleft()
        self._link.say(self._carried, b"taken", count=len(piece))
        return piece

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            while self._window <= 0:
                await self._change()
            size = min(self._window, CHUNK, len(view))
            self._window -= size
            self._link.say(self._carried, b"data", view[:size])
            view = view[size:]

    async def write_end(self) -> None:
        self._link.say(self._carried, b"eof")

    async def flushed(self) -> None:
        """Wait until the process inside has taken all that was sent, or is gone."""
        while self._window < WINDOW:
            await self._change()

    async def _change(self) -> None:
        if self._gone:
            raise ConnectionResetError("the process in the sandbox closed the connection")
        self._changed.clear()
        await self._changed.wait()
        if self._gone:
            raise ConnectionResetError("the process in the sandbox closed the connection")
