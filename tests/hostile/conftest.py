"""The command line in this process."""

from __future__ import annotations

import pytest

from tests.cli.kit import Cli, in_process


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return in_process(monkeypatch, capsys)
