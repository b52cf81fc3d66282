"""``python -m agentenv.local`` and its progress bar."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from agentenv.local.__main__ import main
from agentenv.local.progress import progress_bar
from rich.console import Console

from tests.local.smollm2 import model_path


def test_a_model_that_is_there_is_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    out, err = capsys.readouterr()
    assert out == f"{model_path()}\n"
    assert err == ""


def test_a_model_that_cannot_be_had_is_a_fault_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models").write_text("in the way")
    monkeypatch.setenv("AGENTENV_CACHE", str(tmp_path))
    assert main() == 3
    assert "--model PATH" in capsys.readouterr().err


def test_the_bar_shows_what_was_told_and_nothing_before() -> None:
    drawn = io.StringIO()
    with progress_bar("Fetching", Console(file=drawn, force_terminal=True, width=100)):
        assert drawn.getvalue() == ""
    assert drawn.getvalue() == ""
    with progress_bar("Fetching", Console(file=drawn, force_terminal=True, width=100)) as progress:
        progress(500_000, 1_000_000)
        progress(1_000_000, 1_000_000)
    assert "Fetching" in drawn.getvalue()
    assert "1.0/1.0" in drawn.getvalue()
