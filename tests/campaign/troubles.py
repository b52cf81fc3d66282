"""What the tools of the campaign's episodes do to their sandbox, and what may come of it.

Every bomb is bounded by itself: where a sandbox does not hold it back, it does not take the machine along.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from textwrap import dedent
from types import MappingProxyType

from agentenv.core.task import Turn
from agentenv.records.axes import CallStatus
from agentenv.toolkit.suite import call


class Outcome(StrEnum):
    """What became of an episode."""

    WHOLE = "whole"
    """It went on: a later command works, and the grader finds the sandbox in order."""
    CUT = "cut"
    """Its own limit of time ended it."""
    LOST = "lost"
    """Its sandbox was gone, and that is what the record blames."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One kind of it."""

    turns: Callable[[random.Random], tuple[Turn, ...]]
    """What the policy says, decided by a seed."""
    comes: frozenset[Outcome] = frozenset({Outcome.WHOLE})
    """What may come of it."""
    statuses: frozenset[CallStatus] | None = frozenset({CallStatus.OK})
    """What the first call of it may be said to have come to; None where it says nothing."""
    output_bytes: int = 0
    """What that call writes, if it floods: all of it is kept, by its hash."""
    limit_s: float = 90.0
    """Of the episode, by the clock, where a sandbox starts at once."""


_TIMEOUT = frozenset({CallStatus.TIMEOUT})
_OK = frozenset({CallStatus.OK})
_ERROR = frozenset({CallStatus.ERROR})
_FLOOD_BYTES = 8 << 20
_PATIENCE_S = 60.0
"""For a command that ends by itself, on a machine however busy."""


def _python(code: str) -> str:
    return f"exec python3 -c {shlex.quote(dedent(code))}"


def _shell(command: str, *, statuses: frozenset[CallStatus] = _OK, timeout_s: float = _PATIENCE_S) -> Trouble:
    return Trouble(turns=lambda draw: (call("shell", command=command, timeout_s=timeout_s),), statuses=statuses)


def _hanging(command: str) -> Trouble:
    return Trouble(
        turns=lambda draw: (call("shell", command=command, timeout_s=round(draw.uniform(0.1, 0.8), 2)),),
        statuses=_TIMEOUT,
    )


def _flood(command: str) -> Trouble:
    return Trouble(
        turns=lambda draw: (call("shell", command=command.format(n=_FLOOD_BYTES), timeout_s=_PATIENCE_S),),
        output_bytes=_FLOOD_BYTES,
    )


def _interpreter(code: str, *, statuses: frozenset[CallStatus], timeout_s: float | None = None) -> Trouble:
    def turns(draw: random.Random) -> tuple[Turn, ...]:
        return (call("python", code=dedent(code), timeout_s=timeout_s or round(draw.uniform(0.1, 0.6), 2)),)

    return Trouble(turns=turns, statuses=statuses)


def _endless(draw: random.Random) -> tuple[Turn, ...]:
    return (call("heedless", command="trap '' TERM INT HUP; while :; do sleep 1; done"),)


def _again_and_again(draw: random.Random) -> tuple[Turn, ...]:
    hang = "sleep 1000 & exec sleep 1000"
    return tuple(call("shell", command=hang, timeout_s=round(draw.uniform(0.1, 0.5), 2)) for _ in range(120))


def _struck(what: str, draw: random.Random) -> tuple[Turn, ...]:
    """Let something befall the sandbox from outside, while it works."""
    work = ["sleep 0.01", "head -c 1M /dev/zero | tail -c 1; ls", "echo x > made; cat made", "sleep 0.1 & wait"]
    busy = [call("shell", command=draw.choice(work), timeout_s=1.0) for _ in range(draw.randrange(6))]
    strike = call("strike", what=what, after_s=round(draw.uniform(0.0, 0.4), 3))
    return strike, *busy, call("shell", command="exec sleep 1000", timeout_s=1.0)


_DAEMON = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 32):
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_IGN)
        os.chdir("/")
        os.closerange(0, 256)
        time.sleep(1000)
    os._exit(0)
os.wait()
print("daemon started")
"""

_MOVING = """
import os
for hop in range(3000):
    if os.fork():
        os._exit(0)
    os.setsid()
"""

_FORK_BOMB = """
import os, time
for level in range(11):
    try:
        os.fork()
    except OSError:
        break
time.sleep(0.3)
"""

_FILES = """
import os
made = 0
try:
    for number in range(6000):
        if number % 100 == 0:
            os.mkdir(f"{place}/folder{number}")
        open(f"{place}/folder{number // 100 * 100}/{number}", "x").close()
        made += 1
except OSError as error:
    print(error)
print(made)
"""

_FILLING = """
made = 0
try:
    for number in range(8):
        with open(f"{place}/fill{number}", "wb") as file:
            for piece in range(16):
                made += file.write(bytes(1 << 20))
except OSError as error:
    print(error)
print(made)
"""

_MEMORY = """
held = []
try:
    for piece in range(96):
        held.append(bytearray(b"x") * (8 << 20))
except MemoryError:
    print("refused at", len(held))
"""

_MEMORY_OF_MANY = """
import os, time
for process in range(6):
    if os.fork() == 0:
        held = bytearray(b"x") * (100 << 20)
        time.sleep(0.3)
        os._exit(0)
for process in range(6):
    os.wait()
"""

_DEEP = """
import os
try:
    for level in range(700):
        os.mkdir("d" * 60)
        os.chdir("d" * 60)
except OSError as error:
    print(error)
"""

_STOPPING_ALL = "sleep 1000 & sleep 1000 & kill -STOP -1; kill -STOP $$"


TROUBLES: Mapping[str, Trouble] = MappingProxyType(
    {
        # Hanging.
        "hangs": _hanging("exec sleep 1000"),
        "hangs, deaf to signals": _hanging("trap '' TERM INT HUP QUIT; while :; do sleep 1000; done"),
        "burns CPU": _hanging("while :; do :; done"),
        "waits for input": _shell("cat; exec cat"),
        "stops itself": _hanging("kill -STOP $$; exec sleep 1000"),
        "stops everybody": _hanging(_STOPPING_ALL),
        "closes its streams": _hanging("exec <&- >&- 2>&-; exec sleep 1000"),
        "closes its streams and ends": _shell("exec <&- >&- 2>&-; (sleep 1000 &); exit 3"),
        "hangs beyond its episode": Trouble(turns=_endless, comes=frozenset({Outcome.CUT}), statuses=None, limit_s=1.5),
        "hangs again and again": Trouble(
            turns=_again_and_again, comes=frozenset({Outcome.CUT}), statuses=_TIMEOUT, limit_s=2.0
        ),
        # Too much of something.
        "forks": _shell(_python(_FORK_BOMB)),
        "floods": _flood("exec head -c {n} /dev/zero"),
        "floods its errors": _flood("yes | head -c {n} >&2"),
        "floods and hangs": Trouble(
            turns=lambda draw: (
                call("shell", command=f"head -c {_FLOOD_BYTES} /dev/zero; exec sleep 1000", timeout_s=8.0),
            ),
            statuses=_TIMEOUT,
            output_bytes=_FLOOD_BYTES,
        ),
        "fills the workspace": _shell(_python(_FILLING.replace("{place}", "."))),
        "fills /tmp": _shell(_python(_FILLING.replace("{place}", "/tmp"))),
        "fills /dev/shm": _shell(_python(_FILLING.replace("{place}", "/dev/shm"))),
        "exhausts inodes": _shell(_python(_FILES.replace("{place}", "."))),
        "exhausts inodes of /tmp": _shell(_python(_FILES.replace("{place}", "/tmp"))),
        "exhausts memory": _shell(_python(_MEMORY)),
        "exhausts memory, many at once": _shell(_python(_MEMORY_OF_MANY), statuses=_OK | _TIMEOUT, timeout_s=12.0),
        "makes a deep tree": _shell(_python(_DEEP)),
        # Escaping the end.
        "daemonises": _shell(_python(_DAEMON)),
        "daemonises and hangs": _hanging(f"python3 -c {shlex.quote(_DAEMON)}; exec sleep 1000"),
        "moves from process to process": _shell(_python(_MOVING)),
        # At the supervisor's throat.
        "kills everybody": _shell("sleep 1000 & kill -9 -1"),
        "kills process 1": _shell("kill -9 1; kill -TERM 1; kill -INT 1; kill -STOP 1; kill -9 $PPID; kill -HUP 1"),
        "kills all, again and again": _shell(
            "for n in 1 2 3 4 5 6; do (kill -9 -1 &); done; kill -9 1; exec sleep 0.05"
        ),
        # The workspace.
        "links out of its workspace": _shell(
            "rm -rf ../workspace ./*; rmdir ../workspace; mv ../workspace ../other; ln -s / ../workspace; "
            "ln -s /etc/passwd passwd; ln -s / everything; ln -s /proc/1/root root; ln -sfn . witness"
        ),
        "closes its workspace": _shell("mkdir -p a/b; echo x > a/b/c; chmod 000 a/b/c a/b a; chmod 000 ."),
        "names its files oddly": _shell(
            r"""touch -- -rf ' ' '*' "$(printf 'a\nb')" "$(printf '\377\376')"; mkdir '?'; mkfifo fifo"""
        ),
        # The kept interpreter.
        "interpreter kills itself": _interpreter(
            "import os; os.kill(os.getpid(), 9)", statuses=_ERROR, timeout_s=_PATIENCE_S
        ),
        "interpreter hangs": _interpreter(
            """
            import signal
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
            while True:
                try:
                    while True:
                        pass
                except BaseException:
                    pass
            """,
            statuses=_TIMEOUT,
        ),
        "interpreter closes its streams": _interpreter(
            "import os; os.closerange(0, 256); os.fork()", statuses=_ERROR | _TIMEOUT
        ),
        # Dying at random, from outside.
        "dies": Trouble(turns=lambda draw: _struck("kill", draw), comes=frozenset({Outcome.LOST})),
        "freezes": Trouble(
            turns=lambda draw: _struck("freeze", draw),
            comes=frozenset({Outcome.LOST}),
            # In the middle of a snapshot only the end of the episode shows it.
            limit_s=9.0,
        ),
        "loses its launcher": Trouble(turns=lambda draw: _struck("orphan", draw)),
    }
)
