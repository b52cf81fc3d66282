"""The layers hold, and say which packages stand on which floor. `make check` runs the same contracts."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_contract_of_the_layers_is_kept() -> None:
    """Imports go down only; nothing below imports plug-ins or the test kit; records and engine do no I/O."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], capture_output=True, text=True, timeout=500, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout
    assert "4 kept, 0 broken" in done.stdout


def test_the_test_kit_is_kept_out_of_every_product_module() -> None:
    """A part that is added to the package is added to the contract."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (kept,) = [set(c["source_modules"]) for c in contracts if c.get("forbidden_modules") == ["agentenv.testing"]]
    folder = ROOT / "agentenv"
    parts = {path.parent.name for path in folder.glob("*/__init__.py")} | {path.stem for path in folder.glob("*.py")}
    parts -= {"testing", "__init__", "__main__", "errors"}
    assert kept >= {f"agentenv.{part}" for part in parts} | {"agentenv_tools", "agentenv_tasks"}


def test_no_module_has_a_name_that_says_nothing() -> None:
    """Utils, helpers, common: where things go to be forgotten."""
    nothing = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "tools", "base"}
    for package in ("agentenv", "tools", "tasks"):
        for path in (ROOT / package).rglob("*.py"):
            assert path.stem not in nothing, path


def test_files_stay_small() -> None:
    """About 400 lines is the end of a file."""
    for package in ("agentenv", "tools", "tasks"):
        for path in (ROOT / package).rglob("*.py"):
            assert len(path.read_text().splitlines()) <= 400, path
