"""The command line in this process, and a place for sandboxes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kit import Cli, in_process


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return in_process(monkeypatch, capsys)


@pytest.fixture
def tmp() -> Iterator[Path]:
    """A folder for temporary files that the sandboxes' user can reach."""
    path = Path(tempfile.mkdtemp(prefix="agentenv-test-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)
