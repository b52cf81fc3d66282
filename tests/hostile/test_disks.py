"""Disks that are full, or that nothing may be written to: what was acknowledged is there, and what to do is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OWN_MOUNTS = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--mount")


def on_own_disks(kind: str, tmp_path: Path) -> None:
    (disk := tmp_path / "disk").mkdir()
    subprocess.run([*OWN_MOUNTS, sys.executable, "-m", "tests.hostile.disks", kind, disk], check=True, cwd=ROOT)


def test_a_disk_of_every_size(tmp_path: Path) -> None:
    """Law 11: wherever the space ends, nothing that was acknowledged is lost, and the run goes on with more of it."""
    on_own_disks("full", tmp_path)


def test_a_disk_that_is_read_only(tmp_path: Path) -> None:
    """A run there is read, closed or not; where that cannot be, it is said why, and never half of it read."""
    on_own_disks("read-only", tmp_path)


def test_a_disk_with_room_for_one_workspace(tmp_path: Path) -> None:
    """The second one fails by its own class of fault, is worth another try, and leaves nothing behind."""
    tmp_path.parent.chmod(0o711)
    tmp_path.parent.parent.chmod(0o711)
    on_own_disks("no-room", tmp_path)
