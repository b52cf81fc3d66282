"""What is inside of a container: an image somebody names, or one made here of this machine's ``/usr``.

The second needs no registry: it is a skeleton of folders and links, a few kilobytes, into which ``/usr`` is mounted
read-only when a container starts. Its programs are those of bubblewrap's sandboxes. The image stays with the engine;
``docker rmi`` removes it.
"""

# Folders named here are the container's own.
# ruff: noqa: S108

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentenv.errors import SandboxFault
from agentenv.sandboxes.bundle import COMPILER, compiler_input, packed
from agentenv.sandboxes.docker_stream import Stream

HOST = "host"
"""Instead of an image's name: this machine's ``/usr``."""

_REPOSITORY = "agentenv/host-usr"
_FOLDERS = ("usr", "etc", "etc/alternatives", "proc", "sys", "dev", "tmp", "run", "var", "workspace")
_OPEN_FOLDERS = {"tmp": 0o1777, "workspace": 0o700}
"""What is mounted over these takes over their modes."""
_BESIDE_USR = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SHARED = ("/usr", "/etc/alternatives", "/etc/ld.so.cache")
"""Of this machine, seen inside read-only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostImage:
    """The image of this machine's ``/usr``."""

    archive: bytes
    """Its root, as a tar archive; the same for the same machine and user."""
    mounts: tuple[dict[str, Any], ...]
    """In the engine's form."""

    repository: str = _REPOSITORY

    @property
    def tag(self) -> str:
        """Named by its content."""
        return hashlib.sha256(self.archive).hexdigest()[:12]

    @property
    def name(self) -> str:
        """Repository and tag."""
        return f"{self.repository}:{self.tag}"


def host_image(uid: int) -> HostImage:
    """Describe it, for sandboxes that run as this user."""
    whole = io.BytesIO()
    shared = [path for path in _SHARED if Path(path).exists()]
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for folder in _FOLDERS:
            archive.addfile(_entry(folder, tarfile.DIRTYPE))
        for name in _BESIDE_USR:
            path = Path("/", name)
            if path.is_symlink():
                archive.addfile(_entry(name, tarfile.SYMTYPE, link=str(path.readlink())))
            elif path.is_dir():  # on systems older than the merge into /usr
                archive.addfile(_entry(name, tarfile.DIRTYPE))
                shared.append(str(path))
        archive.addfile(_entry("var/tmp", tarfile.SYMTYPE, link="/tmp"))
        for name, content in (
            ("etc/passwd", f"root:x:0:0::/:/bin/sh\nsandbox:x:{uid}:{uid}::/tmp:/bin/sh\n"),
            ("etc/group", f"root:x:0:\nsandbox:x:{uid}:\n"),
            ("etc/ld.so.cache", ""),
        ):
            entry = _entry(name, tarfile.REGTYPE)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
    return HostImage(archive=whole.getvalue(), mounts=tuple(map(_mount, shared)))


def _entry(name: str, kind: bytes, *, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    entry.mode = 0o644 if kind == tarfile.REGTYPE else _OPEN_FOLDERS.get(name, 0o755)
    return entry


def _mount(path: str) -> dict[str, Any]:
    return {"Type": "bind", "Source": path, "Target": path, "ReadOnly": True}


def host_interpreter() -> str:
    """Give the Python of ``/usr``.

    Raises:
        SandboxFault: There is none; permanent.
    """
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if os.access(path, os.X_OK):
            return path
    raise SandboxFault.permanent("no Python below /usr. Remedy: apt-get install python3, or name an image that has one")


COMPILING = ("python3", "-I", "-S", "-c", COMPILER)
"""Command of a container that compiles the supervisor for the Python of its image."""


async def compiled_supervisor(stream: Stream, image: str) -> bytes:
    """Have the interpreter of an image compile the supervisor; give the zip.

    Args:
        stream: Of a container that runs `COMPILING`.
        image: Its name, for the error.

    Raises:
        SandboxFault: It has no Python, or one that is too old; permanent.
    """
    stream.writer.write(compiler_input())
    stream.writer.write_eof()
    compiled = await stream.reader.read()
    try:
        if compiled:
            return packed(compiled)
        why = "it wrote nothing"
    except ValueError as error:
        why = str(error)
    said = stream.attached.words.decode(errors="replace").strip() or why
    raise SandboxFault.permanent(
        f"the Python of the image {image!r} cannot compile the supervisor: {said}. Remedy: an image with Python 3.9 or "
        "newer, as python3 on its PATH"
    )
