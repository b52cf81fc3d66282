"""Disks that are full, and disks that are read-only; ends with 0 if each held what it had acknowledged.

Started by a test in a mount namespace of its own: ``unshare --mount python -m tests.hostile.disks KIND FOLDER``.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import SandboxLimits, SandboxSpec
from agentenv.core.store import AttemptKey
from agentenv.errors import HarnessFault, SandboxFault
from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.storage.reader import JournalReader
from agentenv.storage.run_folder import RunFolder
from agentenv.testing.contracts.store import asked

PAGE_KB = 4
NO_ROOM = r"no room for a workspace in .* Free space there, or set TMPDIR"
KEY = AttemptKey("e", 1)


async def fill(out: Path, number: int) -> tuple[int, str]:
    """Write facts and blobs until a write fails; give how many facts were acknowledged, and the error."""
    written = 0
    try:
        with RunFolder.resume(out, {}) if out.exists() else RunFolder.create(out, {}) as folder:
            async with folder.journal() as journal:
                while True:
                    await journal.append(KEY, asked(f"{number + written}", padding="x" * 3000))
                    written += 1
                    if number:  # the disk was enlarged: this was the proof
                        return written, ""
                    folder.blobs.put(b"%d" % written)
    except HarnessFault as fault:
        return written, "" if fault.retryable else str(fault)


def kept(out: Path) -> list[str]:
    with JournalReader(out / "journal") as reader:
        reader.check()
        return [fact.messages[0].text for fact in reader.facts(KEY)] if reader.attempts() else []  # type: ignore[union-attr]


def kept_or_said(out: Path) -> list[str] | str:
    try:
        return kept(out)
    except HarnessFault as fault:
        return str(fault)


def on_a_disk_of(size_kb: int, disk: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_kb}k", "none", disk], check=True)
    out = disk / "run"
    written, said = asyncio.run(fill(out, 0))
    assert "bytes free. " in said, said
    assert "Free space and resume the run" in said, said
    found = kept_or_said(out)
    if isinstance(found, str):
        assert "Reading takes 32 KiB beside the file: free space, or read a copy" in found, found
    else:
        assert found[:written] == [f"{n}" for n in range(written)]
    subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
    before = kept(out) if (out / "journal").is_dir() else []
    assert before[:written] == [f"{n}" for n in range(written)], (size_kb, written, before)
    assert len(before) <= written + 1
    more, said = asyncio.run(fill(out, 1000))
    assert (more, said) == (1, "")
    assert kept(out) == [*before, "1000"]
    subprocess.run(["umount", disk], check=True)


def full(disk: Path) -> None:
    """One disk of each size."""
    for pages in (*range(1, 24), 40, 59):
        on_a_disk_of(pages * PAGE_KB, disk)


async def leave(out: Path) -> None:
    """Write a run and never close it."""
    journal = RunFolder.create(out, {}).journal()
    for number in range(3):
        await journal.append(KEY, asked(f"{number}"))
    sys.stdout.write("written\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def read_only(disk: Path) -> None:
    """A run under way, one whose writer was killed, and one that was closed, on a disk mounted read-only."""
    out = disk.parent / "run"
    command = [sys.executable, "-m", "tests.hostile.disks", "leave", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        subprocess.run(["mount", "--bind", out, disk], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", disk], check=True)
        assert kept(disk) == ["0", "1", "2"]
        writer.kill()
    assert kept(disk) == ["0", "1", "2"]
    (out / "journal" / "main.sqlite-shm").unlink()
    with pytest.raises(HarnessFault, match="only a run that was closed can be read: read a copy"):
        kept(disk)
    with pytest.raises(HarnessFault, match="Make it writable, or choose another folder"):
        RunFolder.resume(disk, {})
    asyncio.run(fill(out, 1000))
    assert kept(disk) == ["0", "1", "2", "1000"]


async def no_room(disk: Path) -> None:
    """A disk with no room for a second workspace, which has when the first one is closed."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=1777", "none", disk], check=True)
    spec = SandboxSpec(files={"a": b"x" * 40_000}, limits=SandboxLimits(workspace_bytes=None))
    deadline = Deadline.after(30, "the test")
    async with BwrapProvider(workspace_root=disk) as provider:
        first = await provider.lease(spec, deadline)
        with pytest.raises(SandboxFault, match=NO_ROOM) as caught:
            await provider.lease(spec, deadline)
        assert caught.value.retryable
        await first.aclose()
        await (await provider.lease(spec, deadline)).aclose()
    labelled = SandboxSpec(labels={"run": "x" * 5000})
    (disk / "fill").write_bytes(bytes(64 << 10))
    async with BwrapProvider(workspace_root=disk) as provider:
        with pytest.raises(SandboxFault, match=NO_ROOM):
            await provider.lease(labelled, deadline)
    assert [path.name for path in disk.iterdir()] == ["fill"]


if __name__ == "__main__":
    kind, folder = sys.argv[1], Path(sys.argv[2])
    if kind == "leave":
        asyncio.run(leave(folder))
    elif kind == "no-room":
        asyncio.run(no_room(folder))
    else:
        {"full": full, "read-only": read_only}[kind](folder)
