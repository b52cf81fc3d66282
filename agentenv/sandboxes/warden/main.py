"""A warden's life: join, give up the user, confine a child in which the supervisor serves, wait, clear up."""

# Descriptors and bytes are what this works on; pathlib would cost the start milliseconds.
# ruff: noqa: PTH208

from __future__ import annotations

import _socket
import fcntl
import marshal
import os
import resource
import select
import struct
import time

from agentenv.sandboxes.supervisor import census, serving
from agentenv.sandboxes.supervisor.lean import suppress
from agentenv.sandboxes.warden import kernel, landlock, root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentenv.sandboxes.warden.settings import Settings

_TICK_S = 0.001
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
_DEVICES = (b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom", b"/dev/tty")


def main(arguments: list[str]) -> None:
    """Do all of it.

    Args:
        arguments: Number of the descriptor with the settings; what follows is for people who look at processes.
    """
    os.umask(0o022)
    fd = int(arguments[0])
    settings: Settings = marshal.loads(os.pread(fd, os.fstat(fd).st_size, 0))  # noqa: S302 - from our own harness
    try:
        for path in settings["joins"]:
            _write(path, b"0")
        _give_up_user(settings["user"])
        if settings["kind"] == "namespaces":
            _in_namespaces(settings)
        else:
            _beside(settings)
    except OSError as error:
        place = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        os.write(2, f"{place}{error.strerror}\n".encode("utf-8", "backslashreplace"))
        os._exit(1)


def _give_up_user(user: int) -> None:
    if os.geteuid() == 0 or os.getuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kernel.forbid_new_privileges()


# In namespaces of its own.


def _in_namespaces(settings: Settings) -> None:
    user, group = os.getuid(), os.getgid()
    kernel.set_dumpable(True)  # giving up the user took from it the right to write its own maps
    kernel.unshare(kernel.NEW_NAMESPACES)
    _write(b"/proc/self/setgroups", b"deny")
    _write(b"/proc/self/uid_map", b"%d %d 1" % (user, user))
    _write(b"/proc/self/gid_map", b"%d %d 1" % (group, group))
    pid = _fork(settings, _confine)
    # Of its rights in the new namespaces it needs none any more, nor shall another process borrow them.
    kernel.set_dumpable(False)
    kernel.drop_capabilities()
    # The kernel lets PID 1 go only when all below it are dead.
    os.waitpid(pid, 0)
    os._exit(0)


def _confine(settings: Settings) -> None:
    kernel.forget_arguments()
    _raise_loopback()
    _socket.sethostname("sandbox")
    root.enter(settings)
    kernel.drop_capabilities()
    # The mounts say the same; this holds should a way around them be found.
    landlock.restrict(
        readable=[b"/"],
        writable=[b"/workspace", b"/tmp", b"/dev/shm"],
        devices=[b"/dev", b"/proc"],
    )
    kernel.filter_system_calls(settings["filter"])


def _raise_loopback() -> None:
    end = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        fcntl.ioctl(end.fileno(), _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
    finally:
        end.close()


# Without namespaces: the weak kinds.


def _beside(settings: Settings) -> None:
    kernel.become_subreaper()
    kernel.set_dumpable(False)
    pid = _fork(settings, _confine_beside)
    ending = select.poll()
    for fd in (os.pidfd_open(pid), settings["harness"]):
        ending.register(fd, select.POLLIN)
    ending.poll()
    while not census.childless():
        census.Sweeper().sweep({})
        census.reap()
        time.sleep(_TICK_S)
    os._exit(0)


def _confine_beside(settings: Settings) -> None:
    kernel.set_dumpable(True)  # until it serves: what is not dumpable may not write its own score, which it lends
    os.chdir(settings["workspace"])
    if settings["processes"]:
        most = settings["processes"] + _threads_of(os.getuid())
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    if settings["kind"] == "landlock":
        version = landlock.restrict(
            readable=[*settings["system_paths"], b"/proc"],
            writable=settings["writable"],
            devices=[*_DEVICES, b"/proc/self/oom_score_adj"],
            network=False,
        )
        if version == 0:
            raise OSError(0, "landlock: this kernel has none, or it is switched off")
    if settings["filter"]:
        kernel.filter_system_calls(settings["filter"])


def _threads_of(user: int) -> int:
    """Count what the kernel counts against the limit of processes of a user."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == user:  # noqa: PTH116
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue  # ended meanwhile
    return count


# Of both.


def _fork(settings: Settings, confine: Callable[[Settings], None]) -> int:
    """Start the child in which the supervisor serves; gives its pid, once the harness can know it too.

    A warden that is killed before takes the child along: it waits for a word.
    """
    go, word = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(word)
        if not os.read(go, 1):
            os._exit(1)
        _serve(settings, confine)
    os.write(settings["told"], b'{"child-pid": %d}' % pid)
    os.write(word, b"!")
    for fd in (0, 1, go, word):  # the stream has to end with the supervisor
        os.close(fd)
    return pid


def _serve(settings: Settings, confine: Callable[[Settings], None]) -> None:
    confine(settings)
    os.close(settings["told"])
    # What is inherited stays open, the zip of these modules in it; children get none of it.
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):  # the listing's own
                os.set_inheritable(int(name), False)
    serving.main([str(settings["harness"])])


def _write(path: bytes, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, content)
    except OSError as error:
        raise OSError(error.errno, f"write {path.decode(errors='replace')}: {error.strerror}") from None
    finally:
        os.close(fd)
