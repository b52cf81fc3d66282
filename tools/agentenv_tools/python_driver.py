"""The program that a kept Python interpreter runs inside the sandbox. Standard library alone; not imported here.

Protocol, one JSON object per line: ``{"id", "code", "timeout_s", "cap_bytes"}`` in, ``{"id", "state", "head", "tail",
"total_bytes"}`` out, with ``state`` one of ``ok``, ``error``, ``stopped``, and output in base64. Requests and answers
travel on private copies of stdin and stdout; file descriptors 1 and 2 are a pipe whose reader keeps head and tail, so
that prints, tracebacks and the output of child processes arrive in one order and in bounded memory.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import json
import linecache
import os
import select
import signal
import sys
import threading
import traceback
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Stopped(BaseException):
    """The time limit of a call; not an `Exception`, so that ordinary handlers let it pass."""

    def __str__(self) -> str:
        return "the time limit of the call was reached"


class Capture:
    """Reads one pipe for as long as the interpreter lives; keeps the first and last bytes of each call."""

    def __init__(self) -> None:
        self.source, self.sink = os.pipe()
        self._asked, self._ask = os.pipe()
        self._drained = threading.Event()
        self._head, self._tail, self._total = b"", b"", 0
        self._half = 1 << 16
        os.set_blocking(self.source, False)
        threading.Thread(target=self._read, daemon=True).start()

    def begin(self, cap_bytes: int) -> None:
        """Say how much to keep of what comes now."""
        self._half = cap_bytes // 2

    def take(self) -> tuple[bytes, bytes, int]:
        """Give what has been written since the last time: head, tail, and how much it was."""
        self._drained.clear()
        os.write(self._ask, b"!")
        self._drained.wait()
        taken = self._head, self._tail, self._total
        self._head, self._tail, self._total = b"", b"", 0
        return taken

    def _read(self) -> None:
        while True:
            ready = select.select([self.source, self._asked], [], [])[0]
            if self._asked in ready:
                os.read(self._asked, 1)
                while self._keep():
                    pass
                self._drained.set()
            elif self.source in ready:
                self._keep()

    def _keep(self) -> bool:
        """Take in what there is; False if there is nothing now."""
        try:
            data = os.read(self.source, 1 << 16)
        except BlockingIOError:
            return False
        self._total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        if len(data) > room:
            self._tail = (self._tail + data[room:])[-self._half :]
        return bool(data)


class Interpreter:
    """Runs pieces of code in one namespace."""

    def __init__(self) -> None:
        self._module = types.ModuleType("__main__")
        sys.modules["__main__"] = self._module
        self._pid = os.getpid()
        self._capture = Capture()
        self._count = 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run one piece of code."""
        self._count += bool(request["code"])  # the question that only asks for a sign of life has none
        self._capture.begin(request["cap_bytes"])
        self._connect()
        state = self._run(request["code"], f"<call {self._count}>", request["timeout_s"])
        if os.getpid() != self._pid:  # the code forked: only the parent answers
            os._exit(0)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        head, tail, total = self._capture.take()
        return {
            "id": request["id"],
            "state": state,
            "head": base64.b64encode(head).decode(),
            "tail": base64.b64encode(tail).decode(),
            "total_bytes": total,
        }

    def _connect(self) -> None:
        """Point the standard streams at the pipe, whatever the last call did to them."""
        for name, fd in (("stdout", 1), ("stderr", 2)):
            os.dup2(self._capture.sink, fd)
            stream = getattr(sys, name)
            if stream is None or stream is getattr(sys, f"__{name}__") or getattr(stream, "closed", False):
                fresh = open(fd, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115 - kept open
                setattr(sys, name, fresh)

    def _run(self, code: str, filename: str, timeout_s: float) -> str:
        try:
            signal.signal(signal.SIGALRM, _stop)
            signal.setitimer(signal.ITIMER_REAL, timeout_s)
            try:
                self._execute(code, filename)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException as error:  # noqa: BLE001 - whatever the code raises is its output
            _report(error)
            return "stopped" if isinstance(error, Stopped) else "error"
        return "ok"

    def _execute(self, code: str, filename: str) -> None:
        """Run statements; the value of a last expression is shown as at a prompt."""
        linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
        tree = ast.parse(code, filename)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        names = self._module.__dict__
        exec(compile(tree, filename, "exec"), names)  # noqa: S102 - what the sandbox is for
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), filename, "eval"), names)  # noqa: S307 - as above
            if value is not None:
                names["_"] = value
                print(repr(value))  # noqa: T201 - into the captured output


def _stop(signum: int, frame: object) -> None:
    raise Stopped


def _report(error: BaseException) -> None:
    """Write the traceback without this program's own frames, behind what was printed before."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == _OWN_FILE:
        trace = trace.tb_next
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    try:
        text = "".join(traceback.format_exception(type(error), error, trace))
    except Exception:  # noqa: BLE001 - an exception that cannot be printed is named
        text = f"{type(error).__name__}\n"
    data = text.encode("utf-8", "backslashreplace")
    while data:
        data = data[os.write(2, data) :]


def main() -> None:
    """Answer requests until there are no more."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    sys.path.insert(0, "")  # only now: started with -I, so that no file of the workspace stands for a module above
    interpreter = Interpreter()
    for line in requests:
        answers.write(json.dumps(interpreter.answer(json.loads(line))).encode() + b"\n")
        answers.flush()


_OWN_FILE = main.__code__.co_filename

if __name__ == "__main__":
    main()
