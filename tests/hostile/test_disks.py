"""Disks that are full, or that nothing may be written to: what was acknowledged is there, and what to do is said."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN_MOUNTS = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--mount")


@pytest.fixture
def disk() -> Iterator[Path]:
    """A place for a disk that the sandboxes' user can reach; beside it is room."""
    path = Path(tempfile.mkdtemp(prefix="agentenv-test-"))
    path.chmod(0o711)
    (path / "disk").mkdir()
    yield path / "disk"
    shutil.rmtree(path)


def on_own_disks(kind: str, disk: Path) -> None:
    subprocess.run([*OWN_MOUNTS, sys.executable, "-m", "tests.hostile.disks", kind, disk], check=True, cwd=ROOT)


def test_a_disk_of_every_size(disk: Path) -> None:
    """Law 11: wherever the space ends, nothing that was acknowledged is lost, and the run goes on with more of it."""
    on_own_disks("full", disk)


def test_a_disk_that_is_read_only(disk: Path) -> None:
    """A run there is read, closed or not; where that cannot be, it is said why, and never half of it read."""
    on_own_disks("read-only", disk)


def test_a_disk_with_room_for_one_workspace(disk: Path) -> None:
    """The second one fails by its own class of fault, is worth another try, and leaves nothing behind."""
    on_own_disks("no-room", disk)
