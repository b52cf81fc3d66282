"""The command line, run in this process or in one of its own."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from agentenv.cli.main import main
from agentenv.config.reading import stored_run
from agentenv.engine.audit import audit
from agentenv.records.clock_fields import differences
from agentenv.records.episode import EpisodeRecord
from agentenv.rollout.schedule import progress_of

_STRIDE_S = 0.01


@dataclass(frozen=True, slots=True)
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str


Cli = Callable[..., Said]
"""Runs ``agentenv ARGUMENTS`` in this process."""


def in_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["agentenv", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        else:
            code = 0
        said = capsys.readouterr()
        if code in (2, 3):
            check_wording(said.err)
        return Said(code, said.out, said.err)

    return run


NAMED = re.compile(r"[a-z_]+ \(--[a-z-]+\) ")
"""A setting, as `agentenv.config.run_config.option` writes it."""


def check_wording(said: str) -> None:
    """What a command says of a failure reads as sentences do.

    It begins with a capital, an option, a setting, an address, a path or something in quotes; and no sentence of it
    ends twice.
    """
    assert not re.search(r"[^.]\.\.(?:\s|$)|[?!:]\.(?:\s|$)|: *\. ", said), said
    for line in said.splitlines():
        if line.startswith("agentenv: "):
            said = line.removeprefix("agentenv: ")
            named = NAMED.match(said) or re.match(r"--[a-z]|['\"]|https?://|\S*/", said)
            assert said[0].isupper() or named, line


def started(*arguments: object, tmp: Path | None = None) -> subprocess.Popen[str]:
    """Start ``agentenv ARGUMENTS``; ``tmp`` is its folder for temporary files."""
    return subprocess.Popen(
        [sys.executable, "-m", "agentenv", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | ({} if tmp is None else {"TMPDIR": str(tmp)}),
    )


def finished(*arguments: object, tmp: Path | None = None) -> Said:
    """Run ``agentenv ARGUMENTS`` in a process of its own, to its end."""
    with started(*arguments, tmp=tmp) as process:
        out, err = process.communicate(timeout=500)
        return Said(process.returncode, out, err)


def records(out: Path) -> dict[str, EpisodeRecord]:
    """The attempt that stands for each episode. No attempt of the run, of whatever fate, may break a law."""
    with stored_run(out) as stored:
        for key in stored.reader.attempts():
            record, findings = audit(stored.reader.facts(key))
            assert record is not None, findings
            assert findings == []
        return {record.episode_id: record for record in stored.records()}


def n_facts(out: Path) -> int:
    """How many facts the journal holds now; 0 before there is one."""
    try:
        connection = sqlite3.connect(f"file:{out / 'journal' / 'main.sqlite'}?mode=ro", uri=True, timeout=0.0)
    except sqlite3.OperationalError:
        return 0
    with closing(connection):
        try:
            return connection.execute("SELECT coalesce(max(id), 0) FROM facts").fetchone()[0]
        except sqlite3.OperationalError:
            return 0  # it is being made, or put in order


def stopped_at(process: subprocess.Popen[str], enough: Callable[[], bool]) -> bool:
    """Let it go on in short strides, and stop it (SIGSTOP) as soon as ``enough`` says so.

    However fast the machine is, nothing much happens between two looks.

    Returns:
        Whether it is stopped; otherwise it came to its end before.
    """
    while not enough():
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(_STRIDE_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGSTOP)
        else:
            return False
    process.send_signal(signal.SIGSTOP)
    return process.poll() is None


def n_done(out: Path) -> int:
    """How many episodes have an attempt that is done."""
    with stored_run(out) as stored:
        return len(progress_of(stored.reader).done)


def check_same(ours: dict[str, EpisodeRecord], theirs: dict[str, EpisodeRecord]) -> None:
    """The same episodes, with the same records but for clock fields and attempt numbers."""
    assert ours.keys() == theirs.keys()
    for name, record in ours.items():
        assert differences(record, theirs[name]) == []
