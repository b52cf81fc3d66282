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
import tarfile
from dataclasses import dataclass
from typing import Any

from agentenv.errors import SandboxFault
from agentenv.sandboxes.bundle import COMPILER, compiler_input, packed
from agentenv.sandboxes.docker_stream import Stream
from agentenv.sandboxes.host_system import account_files, system_folders, system_links, system_settings

HOST = "host"
"""Instead of an image's name: this machine's ``/usr``."""

_REPOSITORY = "agentenv/host-usr"
_FOLDERS = ("usr", "etc", "etc/alternatives", "proc", "sys", "dev", "tmp", "run", "var", "workspace")
_MODES = {"tmp": 0o1777, "workspace": 0o700}
"""What is mounted over these takes over their modes; of all others it is 0755."""


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
    shared = (*system_folders(), *system_settings())
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for folder in dict.fromkeys((*_FOLDERS, *(path.strip("/") for path in system_folders()))):
            archive.addfile(_entry(folder, tarfile.DIRTYPE))
        for path, target in (*system_links(), ("/var/tmp", "/tmp")):
            archive.addfile(_entry(path.strip("/"), tarfile.SYMTYPE, link=target))
        for path, content in {**account_files(uid), "/etc/ld.so.cache": b""}.items():
            archive.addfile(_entry(path.strip("/"), tarfile.REGTYPE, size=len(content)), io.BytesIO(content))
    return HostImage(archive=whole.getvalue(), mounts=tuple(map(_mount, shared)))


def _entry(name: str, kind: bytes, *, link: str = "", size: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, link, size
    entry.mode = 0o644 if kind == tarfile.REGTYPE else _MODES.get(name, 0o755)
    return entry


def _mount(path: str) -> dict[str, Any]:
    return {"Type": "bind", "Source": path, "Target": path, "ReadOnly": True}


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
