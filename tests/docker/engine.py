"""A Docker Engine of one's own: on its own socket, with its own folders and control groups, and gone at the end.

    python tests/docker/engine.py COMMAND [ARGUMENT ...]      runs a command with DOCKER_HOST set to such an engine

It needs root, and ``dockerd`` (Debian: ``apt-get install docker.io``). It makes no bridge and touches no firewall rule,
so that the machine's network, and another engine on it, stay as they are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

START_LIMIT_S = 60.0
STOP_LIMIT_S = 60.0
_TICK_S = 0.05
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class EngineFailed(Exception):
    """It could not be started, or left something behind."""


@contextlib.contextmanager
def private_engine(*options: str) -> Iterator[str]:
    """Start an engine, give its address as in ``DOCKER_HOST``, and stop it with all it started.

    Args:
        options: Further ones for ``dockerd``.

    Raises:
        EngineFailed: It is not installed, or does not answer; or something of it was still there at the end.
    """
    # A socket's path has 107 bytes at most, which folders of a test run can exceed.
    folder = Path(tempfile.mkdtemp(prefix="agentenv-engine."))
    group = folder.name.replace(".", "-")
    try:
        with (folder / "log").open("wb") as log:
            daemon = subprocess.Popen(
                _command(folder, group, options), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={"PATH": _SYSTEM_PATH}, start_new_session=True,
            )  # fmt: skip
            try:
                _wait_until_ready(daemon, folder)
                yield f"unix://{folder / 'docker.sock'}"
            finally:
                _stop(daemon, folder)
    finally:
        _clear(folder, group)


def _command(folder: Path, group: str, options: tuple[str, ...]) -> list[str]:
    daemon = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}")
    if daemon is None:
        raise EngineFailed("dockerd is not installed. Remedy (Debian): apt-get install docker.io")
    if os.geteuid() != 0:
        raise EngineFailed("an engine of one's own needs root; or set DOCKER_HOST to a running one")
    return [
        *("setpriv", "--pdeathsig", "TERM", daemon),  # else it would survive a SIGKILL of this process
        *("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")),
        *("--pidfile", str(folder / "pid"), "--host", f"unix://{folder / 'docker.sock'}"),
        *("--iptables=false", "--ip6tables=false", "--bridge=none"),
        *("--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{group}"),
        *options,
    ]


def _wait_until_ready(daemon: subprocess.Popen[bytes], folder: Path) -> None:
    began = time.monotonic()
    while not _answers(folder / "docker.sock"):
        if daemon.poll() is not None or time.monotonic() - began > START_LIMIT_S:
            said = (folder / "log").read_text(errors="replace")[-3000:]
            raise EngineFailed(f"dockerd is not ready (exit code {daemon.poll()}):\n{said}")
        time.sleep(_TICK_S)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(5)
        try:
            asking.connect(str(path))
            asking.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return b" 200 " in asking.recv(1024)
        except OSError:
            return False


def _stop(daemon: subprocess.Popen[bytes], folder: Path) -> None:
    """Stop containers (the daemon does that first), daemon and shims."""
    daemon.terminate()
    try:
        daemon.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
    for pid in _processes(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    ends = time.monotonic() + STOP_LIMIT_S
    while _processes(folder) and time.monotonic() < ends:
        time.sleep(_TICK_S)


def _processes(folder: Path) -> list[int]:
    """List the processes whose command line names the engine's folder: containerd and its shims."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            state = (process / "stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue  # it ended
        if f"{folder}/".encode() in command and state != b"Z" and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


def _clear(folder: Path, group: str) -> None:
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        place = line.split()[1]
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", place], check=True)
    shutil.rmtree(folder)
    # Version 1 of control groups has one tree per controller, version 2 a single one.
    trees = [tree / group for tree in (_CONTROL_GROUPS, *_CONTROL_GROUPS.glob("*/"))]
    ends = time.monotonic() + STOP_LIMIT_S
    while not all(map(_removed, trees)):
        if time.monotonic() > ends:
            raise EngineFailed(f"processes in control groups of the engine are still there: {group}")
        time.sleep(_TICK_S)
    if left := _processes(folder):
        raise EngineFailed(f"processes of the engine are still there: {left}")


def _removed(tree: Path) -> bool:
    """Remove control groups, unless some process in one of them is still on its way out."""
    try:
        for path in sorted(tree.glob("**/"), reverse=True):
            path.rmdir()
    except OSError:
        return False
    return True


def main(command: list[str]) -> int:
    """Run a command beside an engine, and give its exit code."""
    with private_engine() as address:
        return subprocess.run(command, env=os.environ | {"DOCKER_HOST": address}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
