"""What an import loads, and what it does: next to nothing. Each question is asked of a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "aiohttp",
    "gymnasium",
    "httpx",
    "hypothesis",
    "jinja2",
    "numpy",
    "pyarrow",
    "pytest",
    "rich",
    "tiktoken",
    "tokenizers",
    "transformers",
    "xllamacpp",
}
"""Packages that take long to import: each is loaded where it is used."""


def loaded_by(code: str, *flags: str) -> set[str]:
    """Top-level packages, and modules of ours, that are loaded after ``code``; it may end by `SystemExit`."""
    program = f"""
import json, sys
before = set(sys.modules)
try:
    {code}
except SystemExit:
    pass
sys.stderr.write(json.dumps(sorted(set(sys.modules) - before)))
"""
    done = subprocess.run(
        [sys.executable, *flags, "-c", program], capture_output=True, text=True, timeout=500, check=True
    )
    modules = json.loads(done.stderr.splitlines()[-1])
    return {name if name.startswith("agentenv") else name.split(".")[0] for name in modules}


def test_importing_the_package_loads_nothing_heavy() -> None:
    """Not even the standard library's heavy parts: names are imported when they are first used."""
    loaded = loaded_by("import agentenv")
    assert loaded & HEAVY == set()
    assert {name for name in loaded if name.startswith("agentenv")} == {"agentenv"}
    assert "asyncio" not in loaded


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["collect", "--help"], ["policy", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    """The command line is there before a user has let go of the key."""
    loaded = loaded_by(f"sys.argv = ['agentenv', *{arguments!r}]\n    from agentenv.cli.main import main\n    main()")
    assert loaded & HEAVY == set()
    floors = {name.split(".")[1] for name in loaded if name.count(".")}
    assert floors <= {"cli", "errors"}, "help needs no part of the engine"


@pytest.mark.parametrize(
    ("module", "may"),
    [
        ("agentenv.records.facts", set()),
        ("agentenv.records.codec", set()),
        ("agentenv.engine.machine", set()),
        ("agentenv.core.task", set()),
        ("agentenv.config.run_config", set()),
        ("agentenv.envs.episode", set()),
        ("agentenv.rollout.collector", set()),
        ("agentenv.storage.run_folder", set()),
        ("agentenv.gym", {"gymnasium", "numpy"}),
    ],
)
def test_a_floor_loads_only_what_it_needs(module: str, may: set[str]) -> None:
    assert loaded_by(f"import {module}") & HEAVY <= may


def test_collecting_with_the_scripted_policy_needs_no_server_library(tmp_path: Path) -> None:
    """What a run does not use is not loaded: no HTTP client, no Gymnasium, no model."""
    command = ["collect", "arithmetic", "--policy", "scripted", "-n", "1", "--out", str(tmp_path / "run")]
    loaded = loaded_by(f"sys.argv = ['agentenv', *{command!r}]\n    from agentenv.cli.main import main\n    main()")
    assert loaded & HEAVY <= {"jinja2", "rich"}


def test_an_import_does_nothing(tmp_path: Path) -> None:
    """No file, no folder, no thread, no output, no environment read that matters, for every module of ours."""
    code = """
import pkgutil, sys, threading, agentenv, agentenv_tasks, agentenv_tools
for package in (agentenv, agentenv_tools, agentenv_tasks):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if found.name.endswith("__main__") or ".testing" in found.name or found.name.endswith("python_driver"):
            continue
        __import__(found.name)
assert threading.active_count() == 1, threading.enumerate()
assert "pytest" not in sys.modules and "hypothesis" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:agentenv", "-c", code],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_the_core_imports_without_the_plug_ins() -> None:
    """The library never needs its own tools and tasks: they are found like anyone else's."""
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("agentenv_tools", "agentenv_tasks"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import pkgutil, agentenv
for found in pkgutil.walk_packages(agentenv.__path__, "agentenv."):
    if not found.name.endswith("__main__") and ".testing" not in found.name:
        __import__(found.name)
from agentenv.registry import suite_names, load_suite
from agentenv.errors import ConfigError
try:
    load_suite("arithmetic")
except ConfigError as error:
    assert "agentenv_tasks" in str(error), error
else:
    raise AssertionError("it was loaded")
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=True)


@pytest.mark.parametrize(
    "statement", ["from agentenv.gym import *", "import agentenv; agentenv.open_run", "import agentenv.testing"]
)
def test_ways_to_import(statement: str) -> None:
    assert loaded_by(statement)
