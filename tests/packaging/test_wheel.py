"""What is built is what is meant: one distribution with three packages, their data files, and entry points."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_licence_that_is_named_is_there_word_for_word() -> None:
    """Apache-2.0, with the bytes of https://www.apache.org/licenses/LICENSE-2.0.txt."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    digest = hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
    assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


@pytest.mark.parametrize("settings", [[], ["RUN=precious"], ["DEMO_RUN=precious"], ["-e"]])
def test_the_demo_removes_nothing_but_a_run(tmp_path: Path, settings: list[str]) -> None:
    """What a user's environment or command line calls a run is left alone, and so is a folder that is none."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "thesis.tex").write_text("x")
    command = ["make", "-f", str(ROOT / "Makefile"), "-o", "model", "demo", "BIN=/nowhere", *settings]
    environment = os.environ | {"RUN": "precious", "DEMO_RUN": "precious"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode != 0
    assert "runs/demo is no run folder" in done.stdout
    assert (tmp_path / "runs" / "demo" / "thesis.tex").exists()
    (tmp_path / "runs" / "demo" / "manifest.json").write_text("{}")
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=500, check=False)
    assert not (tmp_path / "runs" / "demo").exists()
    assert (tmp_path / "precious").exists()


def test_what_builds_the_wheel_is_installed_for_tests() -> None:
    """The build requirement, word for word."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["build-system"]["requires"]) <= set(project["dependency-groups"]["dev"])


def test_the_wheel_has_the_three_packages_and_nothing_else(tmp_path: Path) -> None:
    """Built as a user's pip builds it, with the build tool that is installed: no package index is asked."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(ROOT)], check=True, timeout=500)
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
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "agentenv = agentenv.cli.main:main" in points
    assert "arithmetic = agentenv_tasks.arithmetic:suite" in points
