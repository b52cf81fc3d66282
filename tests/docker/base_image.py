"""An image to build upon without a registry: packages that this Debian machine has, as files of a root.

It has Python with venv, a shell and the usual commands, as official images of Python have. Whatever else a build would
fetch lies in it as well, where pip and `agentenv.local` look: wheels, and the small model.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

WHEELS = "/opt/wheels"
CHANGES = (
    f"ENV PIP_NO_INDEX=1 PIP_FIND_LINKS={WHEELS}",
    "ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    'CMD ["sh"]',
)
"""What the image sets, as lines of a Dockerfile: pip asks nobody."""

_PACKAGES = (
    "python3-venv", "bash", "coreutils", "dash", "findutils", "grep", "sed", "procps", "diffutils",
    "libc-bin", "libgomp1", "libstdc++6",
)  # fmt: skip
_LEFT_OUT = re.compile(r"/usr/share/(doc|man|locale|info|lintian|bash-completion)/|/usr/lib/python3/dist-packages/")
_FILES = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": b"root:x:0:\n",
    "etc/hosts": b"127.0.0.1 localhost\n",
}
_BESIDE_USR = ("bin", "sbin", "lib", "lib64")
_DEPENDS = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")


def wheels_for(project: Path, extras: str, folder: Path) -> Path:
    """Fetch what an installation of the project asks for, for the system's own Python; give the folder."""
    fetching = [sys.executable, "-m", "pip", "--python", "/usr/bin/python3", "download", "--only-binary", ":all:"]
    what = ["hatchling>=1.25", f"{project}[{extras}]"]
    subprocess.run([*fetching, "--quiet", "--dest", str(folder), *what], check=True, capture_output=True, text=True)
    return folder


def write_root(path: Path, *, wheels: Path, model: Path, cache: str) -> None:
    """Write the root as a tar archive.

    Args:
        path: Of the archive.
        wheels: Folder of them.
        model: File of the small model.
        cache: Where the image will look for it.
    """
    with tarfile.open(path, "w") as root:
        for folder in ("etc", "proc", "sys", "dev", "run", "tmp", "var/tmp", "root"):
            root.addfile(_entry(folder, tarfile.DIRTYPE, mode=0o1777 if folder.endswith("tmp") else 0o755))
        for link in _BESIDE_USR:
            if Path("/", link).is_symlink():
                root.addfile(_entry(link, tarfile.SYMTYPE, link=f"usr/{link}"))
        for name, content in _FILES.items():
            root.addfile(_entry(name, tarfile.REGTYPE, size=len(content)), io.BytesIO(content))
        for file in (*_installed(), Path("/etc/ld.so.cache")):
            root.add(file, recursive=False)
        for wheel in wheels.glob("*.whl"):
            root.add(wheel, arcname=f"{WHEELS}/{wheel.name}")
        root.add(model, arcname=f"{cache}/models/{model.name}")


def _entry(name: str, kind: bytes, *, mode: int = 0o644, link: str = "", size: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname, entry.size = kind, mode, link, size
    return entry


def _installed() -> Iterator[Path]:
    """Every file below ``/usr`` of some packages and of those they need."""
    without = [f"--no-{kind}" for kind in _DEPENDS]
    asked = ["apt-cache", "depends", "--recurse", "--installed", *without, *_PACKAGES]
    there = set(_said(["dpkg-query", "--show", "--showformat", "${Package}\\n"]))  # not every alternative is
    names = sorted(there.intersection(_said(asked)))
    listed = {_in_usr(line) for line in _said(["dpkg-query", "--listfiles", *names]) if line.startswith("/")}
    for file in sorted(listed):
        path = Path(file)
        if file.startswith("/usr/") and not _LEFT_OUT.match(file) and (path.is_symlink() or path.exists()):
            yield path


def _in_usr(file: str) -> str:
    top = file.split("/")[1]
    return f"/usr{file}" if top in _BESIDE_USR and Path("/", top).is_symlink() else file


def _said(command: list[str]) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
