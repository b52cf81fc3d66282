"""Blob folders, beyond the contract: what is on disk, and what a failing disk leaves."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from agentenv.errors import DamagedJournal, HarnessFault
from agentenv.storage.blobs import FolderBlobs


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_layout_and_deduplication(tmp_path: Path) -> None:
    """One file per content, named by its hash; nothing else stays."""
    blobs = FolderBlobs(tmp_path)
    sha256 = blobs.put(b"abc").sha256
    written = (tmp_path / sha256[:2] / sha256).stat()
    blobs.put(b"abc")
    assert (tmp_path / sha256[:2] / sha256).stat().st_ino == written.st_ino, "not written again"
    writer = blobs.open()
    writer.write(b"abc")
    writer.commit()
    assert files(tmp_path) == [f"{sha256[:2]}/{sha256}"]


def test_changed_blob_is_damage(tmp_path: Path) -> None:
    """The hash is checked when a blob is read."""
    blobs = FolderBlobs(tmp_path)
    sha256 = blobs.put(b"abc").sha256
    (tmp_path / sha256[:2] / sha256).write_bytes(b"abd")
    with pytest.raises(DamagedJournal, match="changed after it was written"):
        blobs.get(sha256)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63])
def test_what_is_no_hash_is_refused(tmp_path: Path, name: str) -> None:
    """A name from a record is never taken as a path."""
    with pytest.raises(DamagedJournal, match="no SHA-256"):
        FolderBlobs(tmp_path).get(name)


def test_missing_blob_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedJournal, match="cannot be read"):
        FolderBlobs(tmp_path).get("0" * 64)


def test_file_size_limit_is_a_fault_and_leaves_nothing(tmp_path: Path) -> None:
    """The disk gives way in the middle of a blob: a fault that names folder and free bytes, nothing under the hash."""
    code = (
        "import sys, resource; from pathlib import Path; from agentenv.storage.blobs import FolderBlobs\n"
        "from agentenv.errors import HarnessFault\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: FolderBlobs(Path(sys.argv[1])).put(b'x' * 300_000)\n"
        "except HarnessFault as fault: print(fault)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=500, check=True
    )
    assert "Cannot write a blob of 300,000 bytes" in done.stdout
    assert f"{tmp_path} has" in done.stdout
    assert files(tmp_path) == []


def test_unwritable_folder_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(HarnessFault, match="Cannot write a blob"):
        FolderBlobs(tmp_path / "file").put(b"abc")


def test_what_a_crash_left_is_never_read(tmp_path: Path) -> None:
    """A half-written blob has no hash yet."""
    writer = FolderBlobs(tmp_path).open()
    writer.write(b"half")
    with pytest.raises(DamagedJournal):
        FolderBlobs(tmp_path).get(hashlib.sha256(b"half").hexdigest())
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]
    writer.discard()
    assert files(tmp_path) == []
