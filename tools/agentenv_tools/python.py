"""``python``: an interpreter in the sandbox that is kept between calls."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.lifetime import AsyncResource
from agentenv.core.sandbox import Output, Sandbox
from agentenv.core.sandbox_process import ProcessDied, SandboxProcess
from agentenv.core.tool import Result, ToolContext
from agentenv.errors import ToolFault
from agentenv.records.axes import CallStatus
from agentenv.toolkit import sandbox_of, tool
from agentenv.toolkit.off_loop import off_loop
from agentenv.toolkit.output import excerpt
from msgspec import Meta

from agentenv_tools import python_driver
from agentenv_tools.arguments import DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S, text_argument, within

_PROGRAM = "python3"
_CAP_BYTES = 1 << 20
"""Output of one call that is kept, half head, half tail."""
_GRACE_S = 2.0
"""Seconds between the time limit, which interrupts the code, and the death of an interpreter that went on."""
_LOST = "The interpreter was replaced by a fresh one: all variables and imports are lost, files are not."
_KEPT_STATE, _LOST_STATE = {"state": "kept"}, {"state": "lost"}
"""What a result has as its value: whether variables of earlier calls are there for the next one."""


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    """See `python_driver`."""

    id: int
    state: Literal["ok", "error", "stopped"]
    head: bytes
    """The wire has it in base64, which is undone where it is read; so too of the tail."""
    tail: bytes
    total_bytes: Annotated[int, Meta(ge=0, lt=1 << 53)]


class _Killed(Exception):
    """The interpreter is gone, and why: `status` says whose doing it was."""

    def __init__(self, text: str, status: CallStatus) -> None:
        super().__init__(text)
        self.status = status


@tool(needs_sandbox=True, example={"code": "x = 6 * 7\nx"}, sources=(python_driver,))
async def python(
    code: str,
    context: ToolContext,
    deadline: Deadline,
    timeout_s: Annotated[float, Meta(gt=0, le=MAX_TIMEOUT_S)] = DEFAULT_TIMEOUT_S,
) -> Result:
    """Run Python code in an interpreter that keeps its variables between calls.

    What the code prints and the value of its last expression are shown.

    Args:
        code: One or more statements.
        timeout_s: Seconds after which the code is interrupted.
        context: The episode's; filled in, not shown.
        deadline: When the harness stops waiting; filled in, not shown.
    """
    code = text_argument("code", code)
    interpreter = context.state.get("python")
    if interpreter is None:
        interpreter = await context.resources.enter_async_context(_Interpreter(sandbox_of(context)))
        context.state["python"] = interpreter
    limit_s = within(timeout_s, deadline)
    try:
        died = await interpreter.open(deadline)
        answer = await interpreter.run(code, limit_s, deadline)
        result = await off_loop(len(answer.head) + len(answer.tail), _shown, answer, limit_s)
    except _Killed as killed:
        return Result(text=f"{killed}\n{_LOST}", status=killed.status, value=_LOST_STATE)
    if not died:
        return result
    note = f"[before this call: {died}\n{_LOST}]\n"
    return replace(result, text=note + result.text, value=_LOST_STATE)


class _Interpreter(AsyncResource):
    """One kept process, replaced by a fresh one when it died or did not stop."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._process: SandboxProcess | None = None
        self._asked = 0

    async def open(self, deadline: Deadline) -> str:
        """See that there is a process; say how the last one died, if it did between two calls.

        Raises:
            ToolFault: No interpreter could be started.
            SandboxFault, DeadlineReached: Passed through.
        """
        if self._process is not None and self._process.alive:
            return ""
        died = "" if self._process is None else await self._last_words(self._process, deadline)
        await self._start(deadline)
        return died

    async def run(self, code: str, limit_s: float, deadline: Deadline) -> _Answer:
        """Run code in the process that is open.

        Raises:
            _Killed: The process died, or did not stop when its time was up; the next call starts a fresh one.
            SandboxFault, DeadlineReached: Passed through.
        """
        process = self._process
        assert process is not None, "opened before"
        allowed = deadline.sooner(limit_s + _GRACE_S, "python")
        try:
            return await self._ask(process, code, limit_s, allowed)
        except ProcessDied as died:
            await self.aclose()
            text = f"The interpreter died, and what this call printed with it: {died}"
            raise _Killed(text, CallStatus.ERROR) from died
        except DeadlineReached as reached:
            if reached.deadline is deadline:
                raise
            await self.aclose()
            text = f"The code did not stop at its limit of {limit_s:.3g} s and was killed; its output is lost."
            raise _Killed(text, CallStatus.TIMEOUT) from reached
        except (msgspec.DecodeError, RecursionError) as error:
            await self.aclose()
            raise _Killed(
                "The code wrote into the interpreter's own channel and broke it.", CallStatus.ERROR
            ) from error

    async def aclose(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.aclose()

    async def _last_words(self, process: SandboxProcess, deadline: Deadline) -> str:
        try:
            await process.request(b"", deadline)
        except ProcessDied as died:
            return f"the interpreter died: {died}"
        return "the interpreter was replaced"

    async def _start(self, deadline: Deadline) -> None:
        """Start a process and see that it answers."""
        await self.aclose()
        self._process = process = await self._sandbox.start([_PROGRAM, "-I", "-c", _driver()], deadline=deadline)
        try:
            await self._ask(process, "", DEFAULT_TIMEOUT_S, deadline)
        except (ProcessDied, msgspec.DecodeError) as error:
            await self.aclose()
            raise ToolFault.permanent(f"tool 'python': the sandbox has no working {_PROGRAM}: {error}") from error

    async def _ask(self, process: SandboxProcess, code: str, limit_s: float, deadline: Deadline) -> _Answer:
        """Ask once; ids tie an answer to its question.

        Raises:
            msgspec.DecodeError: The answer is none, or another question's.
        """
        self._asked += 1
        request = {"id": self._asked, "code": code, "timeout_s": limit_s, "cap_bytes": _CAP_BYTES}
        line = await process.request(json.dumps(request).encode(), deadline)
        answer = await off_loop(len(line), _decoded, line)
        if answer.id != self._asked:
            raise msgspec.DecodeError(f"answer {answer.id} to question {self._asked}")
        if answer.total_bytes < len(answer.head) + len(answer.tail):
            raise msgspec.DecodeError("more bytes were kept than were written")
        return answer


def _decoded(line: bytes) -> _Answer:
    return msgspec.json.decode(line, type=_Answer)


@functools.cache
def _driver() -> str:
    return Path(python_driver.__file__).read_text(encoding="utf-8")


def _shown(answer: _Answer, limit_s: float) -> Result:
    text, dropped = excerpt(Output(head=answer.head, tail=answer.tail, total_bytes=answer.total_bytes))
    match answer.state:
        case "ok":
            return Result(text=text or "[no output]", bytes_dropped=dropped, value=_KEPT_STATE)
        case "error":
            return Result(text=text, bytes_dropped=dropped, status=CallStatus.ERROR, value=_KEPT_STATE)
        case "stopped":
            text += f"[interrupted after {limit_s:.3g} s; variables set so far are kept]"
            return Result(text=text, bytes_dropped=dropped, status=CallStatus.TIMEOUT, value=_KEPT_STATE)
