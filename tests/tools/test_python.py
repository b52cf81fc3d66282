"""The kept interpreter.

Promises: state survives calls and exceptions; an interrupted call keeps state and output; whatever kills the
interpreter is told with the words that state was lost, and the next call works.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.tool import ToolContext
from agentenv.errors import SandboxFault, ToolFault
from agentenv.records.axes import CallStatus

from agentenv_tools.python import python
from tests.toolkit.kit import NO_DEADLINE, call_one, make_context

LOST = "all variables and imports are lost"
UNHEEDING = "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass"
LIMIT_S = 1.0
"""Of code that has something to do before it is interrupted."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, code that was interrupted takes its time to say so."""
    monkeypatch.setattr("agentenv_tools.python._GRACE_S", 60.0)


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch, patience: None) -> None:
    """What never says anything need not be waited for."""
    monkeypatch.setattr("agentenv_tools.python._GRACE_S", 0.1)


async def run(context: ToolContext, code: str, **options: float) -> tuple[CallStatus, str]:
    result = await call_one(python, context, code=code, **options)
    return result.status, result.text


async def test_state_survives_calls_and_exceptions(context: ToolContext) -> None:
    assert await run(context, "x = 20") == (CallStatus.OK, "[no output]")
    status, text = await run(context, "x += 1\nprint('before')\n1/0\nx = 0")
    assert status is CallStatus.ERROR
    assert text.startswith("before\nTraceback (most recent call last):\n")
    assert 'File "<call 2>", line 3, in <module>\n    1/0\n' in text
    assert text.endswith("ZeroDivisionError: division by zero\n")
    assert 'File "<string>"' not in text
    assert await run(context, "x * 2") == (CallStatus.OK, "42\n")


async def test_last_expression_is_echoed_and_prints_come_first(context: ToolContext) -> None:
    assert await run(context, "print('a')\n'b'") == (CallStatus.OK, "a\n'b'\n")
    assert await run(context, "None") == (CallStatus.OK, "[no output]")
    assert await run(context, "def f(): return 1\nf()") == (CallStatus.OK, "1\n")
    assert await run(context, "_ + 1") == (CallStatus.OK, "2\n")
    assert await run(context, "") == (CallStatus.OK, "[no output]")


async def test_syntax_errors_and_exits_leave_the_interpreter_alone(context: ToolContext) -> None:
    await run(context, "x = 1")
    status, text = await run(context, "def (:")
    assert status is CallStatus.ERROR
    assert "SyntaxError" in text
    for code, name in [
        ("exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ]:
        status, text = await run(context, code)
        assert status is CallStatus.ERROR
        assert name in text
    for code in ("a\0b", "'\ud800'.encode()"):
        status, text = await run(context, code)
        assert status is CallStatus.INVALID_ARGUMENTS
        assert 'argument "code" contains a' in text
    assert await run(context, "x") == (CallStatus.OK, "1\n")


async def test_output_of_children_and_of_broken_streams_is_captured(context: ToolContext) -> None:
    assert await run(context, "import os; os.system('echo child') and None\nprint('after')") == (
        CallStatus.OK,
        "child\nafter\n",
    )
    await run(context, "import sys; sys.stdout.close(); os.close(1)")
    assert await run(context, "print('again')") == (CallStatus.OK, "again\n")
    assert await run(context, "sys.stdout = None") == (CallStatus.OK, "[no output]")
    assert await run(context, "print('and again')") == (CallStatus.OK, "and again\n")
    status, text = await run(context, "input()")
    assert status is CallStatus.ERROR
    assert text.endswith("EOFError: EOF when reading a line\n")
    assert await run(context, r"os.write(1, b'\xff\x00\n') and None; None") == (CallStatus.OK, "\\xff\\x00\n")


async def test_forks_do_not_answer(context: ToolContext) -> None:
    code = "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('parent' if pid else 'child', flush=True)"
    assert await run(context, code) == (CallStatus.OK, "child\nparent\n")
    assert await run(context, "pid > 0") == (CallStatus.OK, "True\n")


async def test_classes_can_be_pickled(context: ToolContext) -> None:
    code = "import pickle\nclass A: pass\ntype(pickle.loads(pickle.dumps(A()))).__name__"
    assert await run(context, code) == (CallStatus.OK, "'A'\n")


async def test_interrupted_code_keeps_state_and_output(context: ToolContext) -> None:
    code = "y = 5\nprint('working')\ntry:\n    while True: pass\nexcept Exception: pass"
    status, text = await run(context, code, timeout_s=LIMIT_S)
    assert status is CallStatus.TIMEOUT
    assert text.startswith("working\n")
    assert text.endswith("[interrupted after 1 s; variables set so far are kept]")
    assert await run(context, "y") == (CallStatus.OK, "5\n")


@pytest.mark.usefixtures("no_patience")
async def test_code_that_does_not_stop_is_killed_and_says_what_is_lost(context: ToolContext) -> None:
    await run(context, "y = 5")
    status, text = await run(context, UNHEEDING, timeout_s=LIMIT_S)
    assert status is CallStatus.TIMEOUT
    assert "did not stop at its limit of 1 s" in text
    assert LOST in text
    status, text = await run(context, "y")
    assert status is CallStatus.ERROR
    assert "NameError" in text


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import os; os._exit(7)", "The interpreter died"),
        ("import os; os.kill(os.getpid(), 9)", "The interpreter died"),
        ("import os\nfor fd in range(3, 20):\n  try: os.write(fd, b'{}\\n')\n  except OSError: pass", "broke"),
    ],
)
async def test_death_is_told_and_the_next_call_works(context: ToolContext, code: str, says: str) -> None:
    await run(context, "y = 5")
    status, text = await run(context, code)
    assert status is CallStatus.ERROR
    assert says in text
    assert LOST in text
    assert await run(context, "1 + 1") == (CallStatus.OK, "2\n")


async def test_death_between_two_calls_is_told_by_the_next_which_runs(context: ToolContext) -> None:
    """State is never lost in silence: a thread that ends the interpreter after the answer was given."""
    assert context.sandbox is not None
    await run(context, "y = 5")
    # It waits for a file, so that the answer to the call that starts it is out before it ends the process.
    code = """import os, threading, time
def end():
    while not os.path.exists("go"): time.sleep(0.01)
    os._exit(7)
threading.Thread(target=end).start()"""
    assert await run(context, code) == (CallStatus.OK, "[no output]")
    pid = "import os; os.getpid()"
    before = (await run(context, pid))[1].strip()
    await context.sandbox.write("go", b"")
    gone = f"while [ -e /proc/{before} ]; do sleep 0.01; done"
    await context.sandbox.run(gone, deadline=NO_DEADLINE, timeout_s=30)
    result = await call_one(python, context, code="'y' in globals()")
    assert result.status is CallStatus.OK
    assert result.text.startswith("[before this call: the interpreter died: the process ended with exit code 7")
    assert LOST in result.text
    assert result.text.endswith("False\n")
    assert result.value == {"state": "lost"}
    assert (await call_one(python, context, code="1")).value == {"state": "kept"}


@pytest.mark.parametrize(
    ("code", "status", "state"),
    [
        ("1/0", CallStatus.ERROR, "kept"),
        ("def f(): return f()\nf()", CallStatus.ERROR, "kept"),
        ("bytearray(1 << 60)", CallStatus.ERROR, "kept"),
        ("import os; os.abort()", CallStatus.ERROR, "lost"),
        ("import ctypes; ctypes.string_at(0)", CallStatus.ERROR, "lost"),
        ("import os; os.kill(0, 9)", CallStatus.ERROR, "lost"),
    ],
)
async def test_the_state_that_is_reported_is_the_state_that_is_there(
    context: ToolContext, code: str, status: CallStatus, state: str
) -> None:
    await check_state(context, code, status, state)


async def check_state(context: ToolContext, code: str, status: CallStatus, state: str, **options: float) -> None:
    await run(context, "y = 5")
    result = await call_one(python, context, code=code, **options)
    assert (result.status, result.value) == (status, {"state": state})
    assert (LOST in result.text) == (state == "lost")
    assert await run(context, "'y' in globals()") == (CallStatus.OK, f"{state == 'kept'}\n")


async def test_the_state_after_an_interruption_is_kept(context: ToolContext) -> None:
    await check_state(context, "while True: pass", CallStatus.TIMEOUT, "kept", timeout_s=0.3)


@pytest.mark.usefixtures("no_patience")
async def test_the_state_of_code_that_does_not_stop_is_lost(context: ToolContext) -> None:
    await check_state(context, UNHEEDING, CallStatus.TIMEOUT, "lost", timeout_s=LIMIT_S)


async def test_answer_to_another_question_is_not_taken(context: ToolContext) -> None:
    """A line that looks like an answer and carries another id breaks the channel; it is never shown as output."""
    forged = '{"id": 99, "state": "ok", "head": "", "tail": "", "total_bytes": 0}'
    code = (
        f"import os\nfor fd in range(3, 20):\n  try: os.write(fd, {forged!r}.encode() + b'\\n')\n  except OSError: pass"
    )
    status, text = await run(context, code)
    assert status is CallStatus.ERROR
    assert "wrote into the interpreter's own channel" in text
    assert LOST in text


async def test_sandbox_without_a_working_python_is_a_fault(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("no-such-python", "true"):
        monkeypatch.setattr("agentenv_tools.python._PROGRAM", program)
        with pytest.raises(ToolFault, match=f"no working {program}") as caught:
            await run(context, "1")
        assert not caught.value.retryable


FORGED = [
    {"head": "!!!"},
    {"tail": "a"},
    {"total_bytes": -6},
    {"head": "QUFBQQ==", "total_bytes": 1},
    {"total_bytes": 10**30},
    {"state": "fine"},
    {"extra": 1},
]


@pytest.mark.parametrize("change", FORGED, ids=json.dumps)
async def test_a_forged_answer_that_is_none_costs_the_interpreter(context: ToolContext, change: dict[str, Any]) -> None:
    """What the code writes into the interpreter's own channel is its own affair: a result, never a fault."""
    answer = json.dumps({"id": 2, "state": "ok", "head": "", "tail": "", "total_bytes": 6, **change})
    code = (
        f"import os\nfor fd in range(3, 20):\n  try: os.write(fd, {answer!r}.encode() + b'\\n')\n  except OSError: pass"
    )
    status, text = await run(context, code)
    assert status is CallStatus.ERROR
    assert "broke it" in text
    assert await run(context, "1 + 1") == (CallStatus.OK, "2\n")


async def test_files_of_the_workspace_cannot_break_the_interpreter(context: ToolContext) -> None:
    """Modules that the policy wrote are imported by its own code alone."""
    assert context.sandbox is not None
    for name in ("json", "ast", "base64", "mine"):
        await context.sandbox.write(f"{name}.py", b"raise RuntimeError('poison')" if name != "mine" else b"x = 7")
    assert await run(context, "import mine\nmine.x") == (CallStatus.OK, "7\n")


async def test_flood_is_bounded_and_counted(context: ToolContext) -> None:
    result = await call_one(python, context, code="for _ in range(300): print('x' * 10_000, end='')\nprint('end')")
    assert result.status is CallStatus.OK
    assert len(result.text) <= 4_000
    assert result.text.startswith("xxx")
    assert result.text.endswith("xend\n")
    assert result.bytes_dropped > 2_990_000


async def test_deadline_of_the_harness_passes_through(context: ToolContext) -> None:
    """Law 12: the deadline that fired is the harness's, so it is no result."""
    await run(context, "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)")
    deadline = Deadline.after(0.3, "episode")
    with pytest.raises(DeadlineReached) as caught:
        await python.call({"code": "import time; signal.pthread_sigmask(0, [14]); time.sleep(50)"}, context, deadline)
    assert caught.value.deadline is deadline


async def test_two_episodes_share_nothing(context: ToolContext) -> None:
    assert context.sandbox is not None
    await run(context, "z = 1")
    other = make_context(context.sandbox)
    async with other.resources:
        status, text = await run(other, "z")
        assert status is CallStatus.ERROR
        assert "NameError" in text


async def test_end_of_the_episode_ends_the_interpreter(context: ToolContext) -> None:
    sandbox = context.sandbox
    assert sandbox is not None

    async def interpreters() -> int:
        execution = await sandbox.run(
            "grep -l '[o]ne JSON object' /proc/[0-9]*/cmdline | wc -l", deadline=NO_DEADLINE, timeout_s=10
        )
        return int(execution.stdout.head)

    other = make_context(sandbox)
    async with other.resources:
        await run(other, "1")
        assert await interpreters() == 1
    assert await interpreters() == 0


async def test_faults_of_the_sandbox_pass_through(context: ToolContext) -> None:
    assert context.sandbox is not None
    await run(context, "1")
    await context.sandbox.aclose()
    with pytest.raises(SandboxFault):
        await run(context, "2")
    with pytest.raises(ToolFault, match="'python' needs a sandbox"):
        await run(make_context(), "1")
