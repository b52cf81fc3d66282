"""MCP servers published by others, installed once into the cache: programs for `agentenv.toolkit.mcp.mcp_stdio`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "agentenv" / "mcp"
SANDBOX_PATH = "/usr/local/bin:/usr/bin:/bin"
_INSTALL_S = 600


def from_pypi(package: str, version: str) -> Path:
    """Install a package and all it needs for the Python that is found inside the sandbox."""
    python = shutil.which("python3", path=SANDBOX_PATH)
    assert python, "no python3 below /usr: apt-get install python3"
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    number = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    return _installed(
        f"{package}-{version}-python{number}",
        lambda folder: [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"),
            *("--target", str(folder), "--python-version", number, "--implementation", "cp"),
            *("--only-binary", ":all:", f"{package}=={version}"),
        ],
    )


def from_npm(package: str, version: str) -> Path:
    """Install a package and all it needs; no script of theirs is run."""
    assert shutil.which("node", path=SANDBOX_PATH), "no node below /usr: apt-get install nodejs npm"
    return _installed(
        f"{package.replace('/', '+')}-{version}",
        lambda folder: [
            *("npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"),
            *("--prefix", str(folder), f"{package}@{version}"),
        ],
    )


def _installed(name: str, command: Callable[[Path], list[str]]) -> Path:
    place = CACHE / name
    if place.is_dir():
        return place
    CACHE.mkdir(parents=True, exist_ok=True)
    unfinished = CACHE / f"{name}.{os.getpid()}"
    unfinished.mkdir()
    subprocess.run(command(unfinished), check=True, timeout=_INSTALL_S)
    unfinished.rename(place)
    return place
