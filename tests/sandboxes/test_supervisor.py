"""The supervisor by itself: an ordinary process on a socket, in no sandbox. Other launchers can rely on this."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from agentenv.sandboxes.bundle import ENTRY, supervisor_sha256, supervisor_zip
from agentenv.sandboxes.supervisor.frames import PREFIX, decode, encode, sizes

SO_SNDBUFFORCE = 32


class Supervisor:
    """A supervisor and a blocking client of it."""

    def __init__(self, folder: Path, *watched: int) -> None:
        bundle = folder / "supervisor.zip"
        bundle.write_bytes(supervisor_zip(sys.executable))
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.socket, theirs = socket.socketpair()
        # Room for more than the supervisor queues: it can always get rid of everything at once. Only root may.
        theirs.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE if os.geteuid() == 0 else socket.SO_SNDBUF, 1 << 21)
        self.socket.settimeout(60)
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", ENTRY.format(zip=str(bundle)), *map(str, watched)],
            stdin=theirs,
            stdout=theirs,
            pass_fds=watched,
        )
        theirs.close()
        self.file = self.socket.makefile("rb")

    def send(self, op: str, id: int, payload: bytes = b"", **fields) -> None:
        self.socket.sendall(encode({"op": op.encode(), "id": id, "more": 0, **fields}, payload))

    def receive(self) -> tuple[dict, bytes]:
        header, payload = sizes(self.file.read(PREFIX))
        return decode(self.file.read(header)), self.file.read(payload)

    def set_up(self) -> None:
        self.send(
            "setup", 1, workspace=os.fsencode(self.workspace), memory=1 << 31, cpu_s=600, file_bytes=1 << 30,
            open_files=256, processes=4096, output_bytes=1000, workspace_files=0, env=[b"PATH=/usr/bin:/bin"],
        )  # fmt: skip
        assert self.receive()[0] == {"id": 1, "kind": b"end"}

    def run(self, id: int, line: bytes, **fields) -> None:
        request = {"argv": [b"/bin/sh", b"-c", line], "cwd": b".", "env": [], "timeout_ms": 60_000, "spill": 0}
        self.send("run", id, **{**request, **fields})

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@pytest.fixture
def supervisor(tmp_path) -> Iterator[Supervisor]:
    supervisor = Supervisor(tmp_path)
    yield supervisor
    supervisor.close()
    assert supervisor.process.wait(60) == 0


def running(word: str) -> int:
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += word.encode() in path.read_bytes()
        except OSError:
            continue
    return found


def test_flood_goes_on_when_the_queue_empties_at_once(supervisor):
    """A command held back for a full queue is released although the queue was never seen half full."""
    supervisor.set_up()
    supervisor.run(2, b"for i in $(seq 30); do head -c 1000000 /dev/zero; echo $i > progress; done", spill=1)
    wait_until_still(supervisor.workspace / "progress")
    received = 0
    while True:
        fields, payload = supervisor.receive()
        if fields["kind"] == b"end":
            break
        received += len(payload) * (fields["part"] == b"out")
    assert received == fields["out"] == 30_000_000


def wait_until_still(path: Path) -> None:
    """Return when a file has not changed for a while: whoever writes it is held back."""
    seen, since = b"", time.monotonic()
    while not seen or time.monotonic() < since + 0.3:
        now = path.read_bytes() if path.exists() else b""
        if now != seen:
            seen, since = now, time.monotonic()
        os.sched_yield()


def test_end_of_the_stream_ends_everything(supervisor):
    """Also what is in sessions of its own, and although the supervisor is not PID 1 here."""
    mark = str(uuid.uuid4().int % 10**9 + 10**6)
    supervisor.set_up()
    supervisor.run(2, b"(setsid sleep %s &); touch up; trap '' TERM HUP; sleep %s" % (mark.encode(), mark.encode()))
    while not (supervisor.workspace / "up").exists():
        os.sched_yield()
    assert running(mark)
    supervisor.close()
    assert supervisor.process.wait(60) == 0
    assert running(mark) == 0


def test_end_of_the_harness_ends_everything(tmp_path):
    """Although somebody else holds the stream open."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as harness:
        watched = os.pidfd_open(harness.pid)
        supervisor = Supervisor(tmp_path, watched)
        os.close(watched)
        supervisor.set_up()
        supervisor.run(2, b"sleep 1000")
        harness.kill()
    assert supervisor.process.wait(60) == 0
    supervisor.close()


@pytest.mark.parametrize("sent", [b"\xff" * 8, b"\0\0\0\x01\0\0\0\0z", encode({"id": 1}), encode({"op": b"run"})])
def test_nonsense_ends_it(supervisor, sent):
    """A harness that breaks the protocol is no harness."""
    supervisor.socket.sendall(sent)
    assert supervisor.file.read() == b""


def test_late_pieces_and_unknown_targets_are_ignored(supervisor):
    """Feeding, asking and cancelling what has ended harms nothing."""
    supervisor.set_up()
    supervisor.send("feed", 2, b"x", target=77)
    supervisor.send("cancel", 3, target=77)
    assert supervisor.receive()[0] == {"id": 3, "kind": b"end"}
    supervisor.send("ask", 4, b"x", process=77)
    assert supervisor.receive()[0]["kind"] == b"died"
    supervisor.run(5, b"echo on")
    fields, payload = supervisor.receive()
    assert (fields["id"], fields["code"], payload) == (5, 0, b"on\n")


def test_interleaved_answers_carry_their_ids(supervisor):
    supervisor.set_up()
    for number in range(2, 12):
        supervisor.run(number, b"read x; echo $x", more=1)
    for number in range(2, 12):
        supervisor.send("feed", 100 + number, b"%d\n" % number, target=number)
    answers = {fields["id"]: payload for fields, payload in (supervisor.receive() for _ in range(10))}
    assert answers == {number: b"%d\n" % number for number in range(2, 12)}


def test_bundle_is_the_same_every_time():
    """For the manifest: the hash is of the sources, whatever interpreter runs them."""
    assert supervisor_zip(sys.executable) == supervisor_zip.__wrapped__(sys.executable)
    assert len(supervisor_sha256()) == 64
