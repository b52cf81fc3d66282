"""Requests of the harness, and what answers them."""

from __future__ import annotations

import errno
import marshal
import os
import select
import sys

from agentenv.sandboxes.supervisor import usage
from agentenv.sandboxes.supervisor.background import Background
from agentenv.sandboxes.supervisor.command import Command
from agentenv.sandboxes.supervisor.crowding import Crowding
from agentenv.sandboxes.supervisor.frames import PREFIX, FrameError, decode, number, sizes, text, texts
from agentenv.sandboxes.supervisor.kept import Kept
from agentenv.sandboxes.supervisor.kernel import become_supervisor
from agentenv.sandboxes.supervisor.loop import Loop
from agentenv.sandboxes.supervisor.outbox import HarnessGone
from agentenv.sandboxes.supervisor.sources import Clearing, Measuring, Sending, Snapshot, refuse
from agentenv.sandboxes.supervisor.spawning import MARK, Child, Limits, NotStarted, OomScore, spawn
from agentenv.sandboxes.supervisor.workspace import Workspace, Writing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentenv.sandboxes.supervisor.carrying import Listener
    from agentenv.sandboxes.supervisor.frames import Fields

_REACH = "agentenv.sandboxes.supervisor.reach"
_RUN_CODE = b"import marshal, sys; run = {}; exec(marshal.load(sys.stdin.buffer), run); run['main'](sys.argv[1:])"
_LISTED = 1000
"""Entries of a folder in one frame."""


class Server:
    """Takes requests from the loop's stream. What fails is answered as such; bytes that are no frame end it all."""

    def __init__(self, loop: Loop, oom_score: OomScore) -> None:
        self._loop = loop
        self._oom_score = oom_score
        self._outbox = loop.outbox
        self._buffer = bytearray()
        self._writings: dict[int, Writing] = {}
        self._backgrounds: dict[int, Background] = {}
        """Those that the harness has not let go of, ended ones included."""
        self._workspace: Workspace
        self._limits: Limits
        self._env: dict[bytes, bytes] = {}
        self._output_bytes = 0
        self._listener: Listener | None = None
        self._handlers: dict[bytes, Callable[[int, Fields, bytes], None]] = {
            b"setup": self._setup,
            b"run": self._run,
            b"start": self._start,
            b"ask": self._ask,
            b"feed": self._feed,
            b"spawn": self._spawn_background,
            b"pull": self._pull,
            b"put": self._put,
            b"cancel": self._cancel,
            b"stop": self._stop,
            b"read": self._read,
            b"write": self._write,
            b"list": self._list,
            b"snapshot": self._snapshot,
            b"clear": self._clear,
            b"usage": self._usage,
            b"reach": self._reach,
            b"listen": self._listen,
            b"carry": self._carry,
        }

    def on_input(self, fd: int, _events: int) -> None:
        """Read what the harness sent, and act on every whole frame of it.

        Raises:
            HarnessGone: It closed the stream, or sent what is no frame.
        """
        try:
            data = os.read(fd, 1 << 18)
        except BlockingIOError:
            return
        except OSError as error:
            raise HarnessGone from error
        if not data:
            raise HarnessGone
        self._buffer += data
        try:
            while self._next_frame():
                pass
        except FrameError as error:
            raise HarnessGone from error

    def _next_frame(self) -> bool:
        if len(self._buffer) < PREFIX:
            return False
        header, payload = sizes(bytes(self._buffer[:PREFIX]))
        end = PREFIX + header + payload
        if len(self._buffer) < end:
            return False
        fields = decode(bytes(self._buffer[PREFIX : PREFIX + header]))
        content = bytes(self._buffer[PREFIX + header : end])
        del self._buffer[:end]
        self._handle(number(fields, "id"), fields, content)
        return True

    def _handle(self, id: int, fields: Fields, payload: bytes) -> None:
        try:
            self._handlers[text(fields, "op")](id, fields, payload)
        except OSError as error:
            refuse(self._outbox, id, error)

    def _done(self, id: int) -> None:
        self._outbox.put({"id": id, "kind": b"end"})

    # Set-up.

    def _setup(self, id: int, fields: Fields, _payload: bytes) -> None:
        self._limits = Limits(
            address_space=number(fields, "memory"),
            cpu_s=number(fields, "cpu_s"),
            file_bytes=number(fields, "file_bytes"),
            open_files=number(fields, "open_files"),
            processes=number(fields, "processes"),
            oom_score=self._oom_score,
        )
        self._limits.apply_to_all()
        self._output_bytes = number(fields, "output_bytes")
        self._workspace = Workspace(
            text(fields, "workspace"),
            file_bytes=number(fields, "file_bytes"),
            max_files=number(fields, "workspace_files"),
        )
        if self._workspace.max_files:
            self._loop.watches.append(Crowding(self._loop, self._workspace))
        self._env = dict(pair.split(b"=", 1) for pair in texts(fields, "env"))
        os.close(self._workspace.folder(b"."))  # fails here where the kernel is too old for openat2
        self._done(id)

    # Processes.

    def _spawn(self, id: int, fields: Fields, *, feed: bool) -> tuple[Child, bytes]:
        mark = b"%d" % id
        env = {MARK: mark, **self._env, **dict(pair.split(b"=", 1) for pair in texts(fields, "env"))}
        try:
            cwd = self._workspace.folder(text(fields, "cwd"))
        except OSError as error:
            raise NotStarted(126, f"working folder: {error.strerror}") from None
        try:
            argv = texts(fields, "argv")
            home = self._workspace.fd
            return spawn(argv, env=env, cwd=cwd, home=home, feed=feed, limits=self._limits), mark
        except OSError as error:
            raise NotStarted(126, f"the command cannot be started: {error.strerror}") from None
        finally:
            os.close(cwd)

    def _run(self, id: int, fields: Fields, payload: bytes) -> None:
        more = number(fields, "more")
        try:
            child, mark = self._spawn(id, fields, feed=bool(payload or more))
        except NotStarted as refusal:
            self._not_started(id, refusal)
            return
        command = self._loop.jobs[id] = Command(
            self._loop,
            id,
            child,
            mark,
            timeout_s=number(fields, "timeout_ms") / 1000,
            keep=self._output_bytes,
            spill=bool(number(fields, "spill")),
        )
        command.feed(payload, last=not more)

    def _not_started(self, id: int, refusal: NotStarted) -> None:
        said = str(refusal).encode("utf-8", "backslashreplace") + b"\n"
        fields: dict[str, int | bytes | list[bytes]] = dict.fromkeys(("timed_out", "killed", "micros", "out"), 0)
        fields.update(id=id, kind=b"end", code=refusal.code, err=len(said), sizes=b"0,0,%d,0" % len(said))
        self._outbox.put(fields, said)

    def _start(self, id: int, fields: Fields, _payload: bytes) -> None:
        try:
            child, mark = self._spawn(id, fields, feed=True)
        except NotStarted as refusal:
            why = str(refusal).encode("utf-8", "backslashreplace")
            self._outbox.put({"id": id, "kind": b"died", "code": refusal.code, "why": why})
            return
        self._loop.jobs[id] = Kept(self._loop, id, child, mark)

    def _spawn_background(self, id: int, fields: Fields, _payload: bytes) -> None:
        try:
            child, mark = self._spawn(id, fields, feed=True)
        except NotStarted as refusal:
            why = str(refusal).encode("utf-8", "backslashreplace")
            self._outbox.put({"id": id, "kind": b"died", "code": refusal.code, "why": why})
            return
        self._loop.jobs[id] = self._backgrounds[id] = Background(self._loop, id, child, mark)

    def _pull(self, id: int, fields: Fields, _payload: bytes) -> None:
        background = self._backgrounds.get(number(fields, "process"))
        if background is None:
            self._outbox.put({"id": id, "kind": b"end", "part": b""})
        else:
            background.pull(id)

    def _put(self, id: int, fields: Fields, payload: bytes) -> None:
        background = self._backgrounds.get(number(fields, "process"))
        if background is None:
            refuse(self._outbox, id, BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))
        else:
            background.take(id, payload, last=bool(number(fields, "last")))

    def _ask(self, id: int, fields: Fields, payload: bytes) -> None:
        job = self._loop.jobs.get(number(fields, "process"))
        if isinstance(job, Kept):
            job.ask(id, payload)
        else:
            self._outbox.put({"id": id, "kind": b"died", "code": 0, "why": b"it had ended before"})

    def _cancel(self, id: int, fields: Fields, _payload: bytes) -> None:
        target = number(fields, "target")
        job, source, writing = (
            self._loop.jobs.get(target),
            self._loop.sources.pop(target, None),
            self._writings.pop(target, None),
        )
        background = self._backgrounds.pop(target, None)
        if background is not None:
            background.cancel()
        elif isinstance(job, (Command, Kept)):
            job.cancel()
        if source is not None:
            source.cancel()
        if writing is not None:
            writing.close()
        self._done(id)

    def _stop(self, id: int, _fields: Fields, _payload: bytes) -> None:
        self._loop.stop(id)

    # Files.

    def _feed(self, id: int, fields: Fields, payload: bytes) -> None:
        """Take a further piece of a command's stdin, or of a file being written."""
        target, last = number(fields, "target"), not number(fields, "more")
        job, writing = self._loop.jobs.get(target), self._writings.get(target)
        if isinstance(job, Command):
            job.feed(payload, last=last)
        elif writing is not None:
            self._add(target, writing, payload, last=last)

    def _write(self, id: int, fields: Fields, payload: bytes) -> None:
        writing = self._writings[id] = self._workspace.create(text(fields, "path"))
        self._add(id, writing, payload, last=not number(fields, "more"))

    def _add(self, id: int, writing: Writing, payload: bytes, *, last: bool) -> None:
        try:
            writing.add(payload)
        except OSError as error:
            last = True
            refuse(self._outbox, id, error)
        else:
            if last:
                self._done(id)
        if last:
            writing.close()
            del self._writings[id]

    def _read(self, id: int, fields: Fields, _payload: bytes) -> None:
        reading = self._workspace.read(text(fields, "path"), number(fields, "limit"))
        self._loop.sources[id] = Sending(self._outbox, id, reading)

    def _list(self, id: int, fields: Fields, _payload: bytes) -> None:
        found = self._workspace.listing(text(fields, "path"))
        for at in range(0, len(found), _LISTED):
            part = found[at : at + _LISTED]
            self._outbox.put(
                {
                    "id": id,
                    "kind": b"data",
                    "names": [name for name, _, _ in part],
                    "kinds": [kind for _, kind, _ in part],
                    "sizes": [b"%d" % size for _, _, size in part],
                }
            )
        self._done(id)

    def _snapshot(self, id: int, _fields: Fields, _payload: bytes) -> None:
        self._workspace.unlock()
        self._loop.sources[id] = Snapshot(self._outbox, id, self._workspace.fd)

    def _clear(self, id: int, _fields: Fields, _payload: bytes) -> None:
        self._workspace.unlock()
        self._loop.sources[id] = Clearing(self._outbox, id, self._workspace.fd)

    # What is asked of the sandbox as a whole.

    def _usage(self, id: int, _fields: Fields, _payload: bytes) -> None:
        used = usage.measure()
        if self._workspace.max_files:
            sizes = {"bytes": self._workspace.count_bytes(), "files": self._workspace.count()}
            self._outbox.put({"id": id, "kind": b"end", **used, **sizes})
        else:
            self._workspace.unlock()
            self._loop.sources[id] = Measuring(self._outbox, id, self._workspace.fd, used)

    def _reach(self, id: int, fields: Fields, _payload: bytes) -> None:
        """Run the program that tries what can be reached, as a command; where it is kept, no command needs to see."""
        code = marshal.dumps(__loader__.get_code(_REACH))
        program = [os.fsencode(sys.executable), b"-I", b"-S", b"-c", _RUN_CODE]
        self._run(id, {**fields, "argv": [*program, *texts(fields, "argv")]}, code)

    # The way out.

    def _listen(self, id: int, _fields: Fields, _payload: bytes) -> None:
        from agentenv.sandboxes.supervisor.carrying import Listener

        self._listener = Listener(self._loop, id)
        proxy = b"http://127.0.0.1:%d" % self._listener.port
        for name in (b"http_proxy", b"https_proxy"):
            self._env.update({name: proxy, name.upper(): proxy})
        self._env.update(dict.fromkeys((b"no_proxy", b"NO_PROXY"), b"localhost,127.0.0.1,::1"))

    def _carry(self, _id: int, fields: Fields, payload: bytes) -> None:
        if self._listener is not None:
            what, count = text(fields, "what"), number(fields, "n")
            self._listener.told(number(fields, "connection"), what, payload, number=count)


def main(watched: list[str]) -> None:
    """Serve on stdin and stdout, and take everything along when they are closed.

    Args:
        watched: Numbers of descriptors that become readable when the harness is gone (a pidfd of it).
    """
    oom_score = OomScore()
    become_supervisor()
    os.umask(0o022)
    for stream in (0, 1):
        os.set_blocking(stream, False)
    loop = Loop(source=0, sink=1)
    for fd in map(int, watched):
        os.set_inheritable(fd, False)
        loop.watch(fd, select.EPOLLIN, _gone)
    try:
        loop.run(Server(loop, oom_score).on_input)
    except HarnessGone:
        loop.kill_everyone()
        os._exit(0)


def _gone(_fd: int, _events: int) -> None:
    raise HarnessGone
