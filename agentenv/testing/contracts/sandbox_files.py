"""The part of the contract suite of sandboxes that is about files."""

from __future__ import annotations

import errno
import os

import pytest

from agentenv.core.sandbox import (
    Sandbox,
    SandboxLimits,
    SandboxProvider,
    SandboxSpec,
    SnapshotLimit,
)
from agentenv.testing.contracts.sandbox_calls import patience, run
from agentenv.testing.contracts.sandbox_fixtures import SandboxFixtures
from agentenv.testing.stores import InMemoryBlobs


class FilesContract(SandboxFixtures):
    """What every sandbox promises of the files in its workspace."""

    async def test_files_read_as_written(self, sandbox: Sandbox) -> None:
        assert await sandbox.read("folder/deep/c.bin") == bytes(range(256))
        await sandbox.write("new/folders/d", b"delta")
        assert await sandbox.read("new/folders/d") == b"delta"
        await sandbox.write("new/folders/d", b"")
        assert await sandbox.read("new/../new/./folders/d") == b""
        assert (await run(sandbox, "cat", "folder/b.txt")).stdout.head == b"beta\n"

    async def test_large_file(self, sandbox: Sandbox) -> None:
        content = os.urandom(1_000_000)
        await sandbox.write("large", content)
        assert await sandbox.read("large", max_bytes=2_000_000) == content
        assert await sandbox.read("large", max_bytes=300_000) == content[:300_000]

    async def test_listing(self, sandbox: Sandbox) -> None:
        assert [(each.name, each.kind) for each in await sandbox.list()] == [("a.txt", "file"), ("folder", "dir")]
        (file,) = [each for each in await sandbox.list("folder") if each.kind == "file"]
        assert (file.name, file.size_bytes) == ("b.txt", 5)

    async def test_names_that_are_not_text(self, sandbox: Sandbox) -> None:
        """Bytes that are no UTF-8 come as lone surrogates and go back as they were."""
        names = ["-rf", "a\nb", "caf\udce9", "ü"]
        for name in names:
            await sandbox.write(f"odd/{name}", name.encode("utf-8", "surrogateescape"))
        assert [each.name for each in await sandbox.list("odd")] == sorted(
            names, key=lambda name: name.encode("utf-8", "surrogateescape")
        )
        assert await sandbox.read("odd/caf\udce9") == b"caf\xe9"

    @pytest.mark.parametrize("path", ["..", "../x", "/etc/passwd", "folder/../../x", "/"])
    async def test_paths_that_lead_out(self, sandbox: Sandbox, path: str) -> None:
        with pytest.raises(PermissionError):
            await sandbox.read(path)
        with pytest.raises(PermissionError):
            await sandbox.write(path, b"")
        with pytest.raises(PermissionError):
            await sandbox.list(path)

    async def test_errors_of_files_say_what_is_wrong(self, sandbox: Sandbox) -> None:
        with pytest.raises(FileNotFoundError, match="missing"):
            await sandbox.read("missing")
        with pytest.raises(IsADirectoryError):
            await sandbox.read("folder")
        with pytest.raises(IsADirectoryError):
            await sandbox.write("folder", b"")
        with pytest.raises(NotADirectoryError):
            await sandbox.list("a.txt")
        with pytest.raises(NotADirectoryError):
            await sandbox.write("a.txt/b", b"")
        with pytest.raises(FileNotFoundError):
            await sandbox.list("missing")

    @pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 300, "x/" * 3000, ""])
    async def test_names_no_file_can_have(self, sandbox: Sandbox, path: str) -> None:
        with pytest.raises(OSError, match="Errno"):
            await sandbox.read(path)
        assert (await run(sandbox, "true")).exit_code == 0

    async def test_file_over_the_limit_is_refused(self, provider: SandboxProvider) -> None:
        limits = SandboxLimits(file_bytes=100_000)
        async with await provider.lease(SandboxSpec(limits=limits), patience()) as sandbox:
            with pytest.raises(OSError, match=r"(?i)large"):
                await sandbox.write("f", bytes(700_000))
            await sandbox.write("f", bytes(100_000))

    async def test_snapshot_is_every_file_by_hash(self, sandbox: Sandbox) -> None:
        blobs = InMemoryBlobs()
        large = os.urandom(700_000)
        await sandbox.write("empty", b"")
        await sandbox.write("large", large)
        snapshot = await sandbox.snapshot(blobs)
        assert {path: blobs.get(spill.sha256) for path, spill in snapshot.items()} == {
            "a.txt": b"alpha\n",
            "empty": b"",
            "folder/b.txt": b"beta\n",
            "folder/deep/c.bin": bytes(range(256)),
            "large": large,
        }
        assert snapshot["large"].size_bytes == len(large)

    async def test_snapshot_beyond_its_limit_is_refused(self, sandbox: Sandbox) -> None:
        """What is beyond it is never all read; the sandbox can be used as before."""
        await sandbox.write("large", bytes(700_000))
        for limit in (SnapshotLimit(files=3), SnapshotLimit(total_bytes=700_000)):
            with pytest.raises(OSError, match="the workspace has more than") as refused:
                await sandbox.snapshot(InMemoryBlobs(), limit=limit)
            assert refused.value.errno == errno.EFBIG
        assert len(await sandbox.snapshot(InMemoryBlobs(), limit=SnapshotLimit(files=4))) == 4
