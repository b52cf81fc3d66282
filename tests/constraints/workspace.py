"""A folder seen through the sandbox contract: what a checker of files may ask for, and nothing else."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NoReturn

from agentenv.core.blobs import BlobSink
from agentenv.core.sandbox import Sandbox
from agentenv.records.messages import Spill


class FolderSandbox(Sandbox):
    """Reads, writes and snapshots a folder as the contract says. It runs nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.largest_read = 0
        """Most bytes that one read returned."""

    async def read(self, path: str, *, max_bytes: int = 1 << 20) -> bytes:
        place = self.root / path
        if not place.resolve().is_relative_to(self.root) or place.is_symlink():
            raise PermissionError(path)
        mode = place.stat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(path)
        if not stat.S_ISREG(mode):
            raise OSError(f"{path} is no regular file")
        with place.open("rb") as file:
            content = file.read(max_bytes)
        self.largest_read = max(self.largest_read, len(content))
        return content

    async def write(self, path: str, content: bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    async def snapshot(self, blobs: BlobSink) -> dict[str, Spill]:
        spills: dict[str, Spill] = {}
        for folder, _, names in os.walk(self.root):
            for name in names:
                place = Path(folder, name)
                if not stat.S_ISREG(place.lstat().st_mode):
                    continue
                writer = blobs.open()
                with place.open("rb") as file:
                    while chunk := file.read(1 << 16):
                        writer.write(chunk)
                spills[str(place.relative_to(self.root))] = writer.commit()
        return spills

    async def aclose(self) -> None:
        pass

    async def stop_processes(self) -> None:
        pass

    async def run(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError("a checker runs nothing")

    async def start(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError("a checker starts nothing")

    async def list(self, path: str = ".") -> NoReturn:
        raise NotImplementedError("a checker lists nothing")
