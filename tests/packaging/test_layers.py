"""The layers hold, and say which packages stand on which floor. `make check` runs the same contracts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_contract_of_the_layers_is_kept() -> None:
    """Imports go down only; nothing below imports plug-ins or the test kit; records and engine do no I/O."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], capture_output=True, text=True, timeout=100, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout
    assert "4 kept, 0 broken" in done.stdout


def test_no_module_has_a_name_that_says_nothing() -> None:
    """Utils, helpers, common: where things go to be forgotten."""
    nothing = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "tools", "base"}
    for package in ("agentenv", "tools", "tasks"):
        for path in (ROOT / package).rglob("*.py"):
            assert path.stem not in nothing, path


def test_files_stay_small() -> None:
    """About 400 lines is the end of a file; the few beyond it are named."""
    longer = {"machine.py", "episode.py"}
    for package in ("agentenv", "tools", "tasks"):
        for path in (ROOT / package).rglob("*.py"):
            assert len(path.read_text().splitlines()) <= 400 or path.name in longer, path
