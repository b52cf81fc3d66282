"""Starting a child: its program, folder, streams and limits."""

# Descriptors and bytes are what this works on; pathlib would cost the start milliseconds.
# ruff: noqa: PTH113, PTH118

from __future__ import annotations

import errno
import os
import resource

from agentenv.sandboxes.supervisor.lean import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MARK = b"AGENTENV_JOB"
"""Variable in the environment of everything a job starts: how a daemon is told from another job's."""

# What is ignored here would stay ignored in children: some by Python, some by the supervisor.
_RESTORED = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGCHLD,
    signal.SIGXCPU,
    signal.SIGTERM,
    signal.SIGHUP,
)
_OOM_SCORE, _MOST_OOM_SCORE = 500, 1000
"""The kernel, short of memory, is to take a command before the supervisor."""


class OomScore:
    """The supervisor's own score, which children inherit; opened before the process becomes untraceable.

    That of a child cannot be set from here: right after its start it belongs to root, as what is untraceable does.
    """

    __slots__ = ("_fd", "_lent", "_own")

    def __init__(self) -> None:
        try:
            self._fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            self._fd = -1  # not ours to say here
            return
        own = int(os.read(self._fd, 16))
        self._own, self._lent = b"%d" % own, b"%d" % min(own + _OOM_SCORE, _MOST_OOM_SCORE)

    def lend(self) -> None:
        """Put on the score of children."""
        if self._fd >= 0:
            os.pwrite(self._fd, self._lent, 0)

    def take_back(self) -> None:
        """Put it off again."""
        if self._fd >= 0:
            os.pwrite(self._fd, self._own, 0)


class Limits:
    """Limits of every child, from the harness."""

    __slots__ = ("address_space", "cpu_s", "file_bytes", "oom_score", "open_files", "processes")

    def __init__(
        self,
        *,
        address_space: int,
        cpu_s: int,
        file_bytes: int,
        open_files: int,
        processes: int,
        oom_score: OomScore,
    ) -> None:
        self.oom_score = oom_score
        self.address_space = address_space
        self.cpu_s = cpu_s
        self.file_bytes = file_bytes
        self.open_files = open_files
        self.processes = processes

    def apply_to_all(self) -> None:
        """Limit what children inherit from the start and the supervisor itself can live with.

        The number of processes has to be limited here, inside the sandbox's user namespace, where only its own
        processes count.
        """
        _limit(0, resource.RLIMIT_AS, self.address_space)
        _limit(0, resource.RLIMIT_NPROC, self.processes)
        _limit(0, resource.RLIMIT_FSIZE, self.file_bytes)
        _limit(0, resource.RLIMIT_CORE, 0)
        self.take_back()

    def lend(self) -> None:
        """Put on what the next child is to inherit and the supervisor cannot live with for long."""
        for which, value in self._lent():
            hard = resource.getrlimit(which)[1]
            resource.setrlimit(which, (_at_most(value, hard), hard))
        self.oom_score.lend()

    def take_back(self) -> None:
        """Put it off again."""
        for which, _ in self._lent():
            hard = resource.getrlimit(which)[1]
            resource.setrlimit(which, (hard, hard))
        self.oom_score.take_back()

    def _lent(self) -> tuple[tuple[int, int], ...]:
        return (resource.RLIMIT_CPU, self.cpu_s), (resource.RLIMIT_NOFILE, self.open_files)

    def harden(self, pid: int) -> None:
        """Make what a new child inherited final. One that is quick to raise it gains time and files, no memory."""
        for which, value in self._lent():
            _limit(pid, which, value)


def _limit(pid: int, which: int, value: int) -> None:
    value = _at_most(value, resource.prlimit(pid, which)[1])
    resource.prlimit(pid, which, (value, value))


def _at_most(value: int, hard: int) -> int:
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


class Child:
    """A started process and our ends of its streams (``stdin`` is -1 where it has none)."""

    __slots__ = ("pid", "stderr", "stdin", "stdout")

    def __init__(self, *, pid: int, stdin: int, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr


class NotStarted(Exception):
    """The program could not be started: exit code as a shell gives it, and why."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def spawn(argv: list[bytes], *, env: Mapping[bytes, bytes], cwd: int, home: int, feed: bool, limits: Limits) -> Child:
    """Start a program in a session of its own.

    Args:
        argv: Program and arguments; the program is looked up in the ``PATH`` of ``env``.
        env: Its whole environment.
        cwd: Descriptor of its working folder.
        home: Descriptor of the supervisor's own, to return to.
        feed: Whether it gets a pipe as stdin, and not the null device.
        limits: Of its process.

    Raises:
        NotStarted: It could not be.
    """
    ours: list[int] = []
    theirs: list[int] = []
    try:
        _streams(ours, theirs, feed=feed)
        os.fchdir(cwd)
        limits.lend()
        pid = _start(argv, env, [(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in enumerate(theirs)])
        limits.harden(pid)
    except BaseException:
        _close(ours)
        raise
    finally:
        limits.take_back()
        os.fchdir(home)
        _close(theirs)
    return Child(pid=pid, stdin=ours[0], stdout=ours[1], stderr=ours[2])


def _streams(ours: list[int], theirs: list[int], *, feed: bool) -> None:
    if feed:
        read, write = os.pipe()
        theirs.append(read)
        ours.append(write)
        os.set_blocking(write, False)
    else:
        theirs.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        ours.append(-1)
    for _ in range(2):
        read, write = os.pipe()
        ours.append(read)
        theirs.append(write)
        os.set_blocking(read, False)


def _start(argv: list[bytes], env: Mapping[bytes, bytes], actions: list[tuple[int, int, int]]) -> int:
    program = _find(argv[0], env.get(b"PATH", b"/usr/bin:/bin")) if argv else b""
    try:
        try:
            return os.posix_spawn(program, argv, env, file_actions=actions, setsid=True, setsigdef=_RESTORED)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
        # A script without a first line that says what runs it, which a shell runs itself.
        argv = [b"/bin/sh", program, *argv[1:]]
        return os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True, setsigdef=_RESTORED)
    except OSError as error:
        code = 127 if error.errno in {errno.ENOENT, errno.ENOTDIR} else 126
        raise NotStarted(code, f"{_shown(program)}: {error.strerror}") from None
    except ValueError as error:
        raise NotStarted(126, f"the command cannot be started: {error}") from None


def _find(program: bytes, path: bytes) -> bytes:
    if b"/" in program:
        return program
    found = b""
    for folder in path.split(b":"):
        candidate = os.path.join(folder or b".", program)
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            found = found or candidate
    if found:
        return found
    raise NotStarted(127, f"{_shown(program)}: command not found")


def _shown(program: bytes) -> str:
    return program[:200].decode("utf-8", "backslashreplace")


def _close(descriptors: list[int]) -> None:
    for fd in descriptors:
        if fd >= 0:
            os.close(fd)
