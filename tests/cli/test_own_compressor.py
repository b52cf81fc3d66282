"""A compressor of one's own, by the path of a file or by the name that a package registers: see docs/collecting.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from agentenv.records.axes import CompactionOutcome

from tests.cli.kit import Cli, records

PAGE = Path(__file__).parents[2] / "docs" / "collecting.md"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The one that the page shows."""
    (block,) = (
        part for part in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "def compressor" in part
    )
    path = tmp_path / "short_results.py"
    path.write_text(block)
    return path


def test_the_one_that_the_page_shows_compresses(cli: Cli, tmp_path: Path, file: Path) -> None:
    """What it did is recorded as of ours, and no law is broken."""
    arguments = ("--policy", "scripted:visible-rule", "--compressor", f"{file}:12000", "-n", 1)
    said = cli("collect", "keep-original", *arguments, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    (record,) = records(tmp_path / "run").values()
    done = [each for step in record.steps for each in step.compactions]
    assert done
    assert {each.compressor for each in done} == {"short-results:12000"}
    assert done[0].outcome is CompactionOutcome.APPLIED
    assert cli("verify", tmp_path / "run").code == 0


def test_a_package_registers_one_by_name(cli: Cli, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "shorter-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shorter\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[agentenv.compressors]\nshort = {file.stem}:compressor\n")
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ("collect", "arithmetic", "--policy", "scripted", "-n", 1, "--out", tmp_path / "run")
    assert cli(*arguments, "--compressor", "short:9000").code == 0
    assert '"name": "short-results:9000"' in (tmp_path / "run" / "manifest.json").read_text()
    assert "short" in {line.split()[0] for line in cli("list", "compressors").out.splitlines()}
    assert "Did you mean 'short'?" in cli(*arguments, "--compressor", "shor:1").err


@pytest.mark.parametrize(
    ("content", "settings", "says"),
    [
        (None, "", "there is no such file"),
        ("x = 1", "", "defines no 'compressor'"),
        ("import os; os._exit(0)", "", "it called os._exit(0)"),
        ("compressor = int", ":many", "cannot be made: ValueError"),
        ("compressor = str", ":9", "makes no compressor: str has no name, sha256, trigger_tokens, plan"),
    ],
)
def test_what_is_none_is_refused(cli: Cli, tmp_path: Path, content: str | None, settings: str, says: str) -> None:
    path = tmp_path / "own.py"
    if content is not None:
        path.write_text(content)
    said = cli(
        "collect", "arithmetic", "--policy", "scripted", "--compressor", f"{path}{settings}", "--out", tmp_path / "run"
    )
    assert said.code == 2, said.err
    assert says in said.err
    assert said.err.startswith("agentenv: compressor (--compressor) ")
    assert not (tmp_path / "run").exists()
