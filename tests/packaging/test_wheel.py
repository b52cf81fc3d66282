"""What is built is what is meant: one distribution with three packages, their data files, and entry points."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_wheel_has_the_three_packages_and_nothing_else(tmp_path: Path) -> None:
    """Built as a user's pip builds it, in an environment of its own: needs the package index."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, timeout=100)
    (wheel,) = tmp_path.glob("agentenv-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        tops = {name.split("/")[0] for name in names}
        metadata = next(name for name in names if name.endswith("entry_points.txt"))
        points = archive.read(metadata).decode()
    assert {top for top in tops if not top.endswith(".dist-info")} == {"agentenv", "agentenv_tools", "agentenv_tasks"}
    homes = {"agentenv": ROOT, "agentenv_tools": ROOT / "tools", "agentenv_tasks": ROOT / "tasks"}
    ours = {str(path.relative_to(home)) for package, home in homes.items() for path in (home / package).rglob("*.py")}
    assert ours <= set(names)
    assert "agentenv = agentenv.cli.main:main" in points
    assert "arithmetic = agentenv_tasks.arithmetic:suite" in points
