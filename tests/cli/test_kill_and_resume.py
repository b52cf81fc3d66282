"""A run that is killed again and again ends as an undisturbed one: the journal's promise, kept by the command."""

from __future__ import annotations

import math
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from agentenv.config.reading import stored_run
from agentenv.records.axes import StopReason

from tests.cli.kit import Cli, check_same, finished, n_done, n_facts, records, started, stopped_at


@dataclass(frozen=True, slots=True)
class Case:
    """One run to disturb."""

    arguments: tuple[object, ...]
    reward: float
    """Of every episode."""


ARITHMETIC = Case(("arithmetic", "--policy", "scripted", "--durability", "power", "--concurrency", 3), 1.0)
WINDOW = Case(
    ("keep-original", "--policy", "scripted:visible-rule", "--compressor", "window:12000", "--concurrency", 2), 0.0
)


def killed(arguments: tuple[object, ...], out: Path, *, after_facts: int, seconds: float, tmp: Path) -> None:
    """Run until so many facts more are on disk, or so many seconds have passed, then SIGKILL."""
    before = n_facts(out)
    process = started(*arguments, tmp=tmp)
    until = time.monotonic() + seconds
    stopped = stopped_at(process, lambda: n_facts(out) >= before + after_facts or time.monotonic() > until)
    process.kill()
    _, err = process.communicate()
    assert stopped, f"the run came to its end before it could be killed: {err}"
    assert process.returncode == -signal.SIGKILL


def disturb(case: Case, tmp_path: Path, tmp: Path, *, tasks: int, kills: int, seed: int) -> None:
    moments = random.Random(seed)
    undisturbed, out = tmp_path / "undisturbed", tmp_path / "killed"
    said = finished("collect", *case.arguments, "-n", tasks, "--out", undisturbed, tmp=tmp)
    assert said.code == 0, said.err
    share = n_facts(undisturbed) // kills
    for number in range(kills):
        door = ["--resume"] if out.exists() else []
        arguments = ("collect", *case.arguments, "-n", tasks, "--out", out, *door)
        killed(
            arguments,
            out,
            # the second kill comes as soon as anything is on disk, so that at least one episode is cut in the middle
            after_facts=1 if number == 1 else moments.randint(1, share),
            # every fourth comes while it starts up, or whenever it happens to be
            seconds=moments.uniform(0.0, 3.0) if number % 4 == 0 else math.inf,
            tmp=tmp,
        )
        if (out / "manifest.json").exists():
            records(out)
    said = finished("collect", *case.arguments, "-n", tasks, "--out", out, "--resume", tmp=tmp)
    assert said.code == 0, said.err
    expected = records(undisturbed)
    check_same(records(out), expected)
    assert {record.reward for record in expected.values()} == {case.reward}
    assert all(record.done for record in records(out).values())
    with stored_run(out) as stored:
        assert len(stored.reader.attempts()) > tasks, "no episode was interrupted: the kills missed"
    assert [path.name for path in tmp.iterdir() if path.name.startswith("agentenv-sandbox")] == []


@pytest.mark.timeout(300)
def test_killed_five_times_and_resumed(tmp_path: Path, tmp: Path) -> None:
    """Law 11: a resumed run ends with the records an undisturbed run would have made."""
    disturb(ARITHMETIC, tmp_path, tmp, tasks=12, kills=5, seed=1)


@pytest.mark.sandboxes
@pytest.mark.timeout(300)
def test_killed_with_sandboxes_and_compactions(tmp_path: Path, tmp: Path) -> None:
    """Law 11: so too where there are sandboxes to sweep, compactions to repeat, and breaches to attribute."""
    disturb(WINDOW, tmp_path, tmp, tasks=3, kills=2, seed=2)
    for record in records(tmp_path / "killed").values():
        (breach,) = record.breaches
        assert not breach.visible
        assert breach.compaction_id is not None


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", [ARITHMETIC, WINDOW], ids=["arithmetic", "window"])
def test_killed_twenty_times_and_resumed(case: Case, tmp_path: Path, tmp: Path) -> None:
    """Law 11, as the issue words it: SIGKILL at 20 random moments, resumed each time."""
    disturb(case, tmp_path, tmp, tasks=40 if case is ARITHMETIC else 16, kills=20, seed=20)


class TestSignals:
    """Ctrl-C and SIGTERM: a clean end, exit 130, everything so far usable; resuming finishes the run."""

    @pytest.mark.parametrize(
        ("suite", "number"),
        [
            ("arithmetic", signal.SIGINT),
            pytest.param("keep-original", signal.SIGTERM, marks=pytest.mark.sandboxes),
        ],
        ids=["ctrl-c", "sigterm"],
    )
    def test_interrupted_and_resumed(
        self, cli: Cli, tmp_path: Path, tmp: Path, number: signal.Signals, suite: str
    ) -> None:
        out = tmp_path / "run"
        tasks, durability = (40, "power") if suite == "arithmetic" else (4, "process")
        arguments = ("collect", suite, "--policy", "scripted", "--durability", durability, "--concurrency", 3)
        arguments = (*arguments, "-n", tasks, "--out", out)
        process = started(*arguments, tmp=tmp)
        assert stopped_at(process, lambda: n_facts(out) >= 40)
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=500)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        assert f"Interrupted: {n_done(out)} of {tasks} episodes are done." in err
        assert "The same command with --resume finishes the run." in err
        said = cli("export", out, "--to", "jsonl")
        assert "not done; finish" in said.out, "a torn episode is no row unless it is asked for"
        rows = (out / "export.jsonl").read_text().splitlines()
        assert len(rows) >= n_done(out)
        assert not any('"reason":"cancelled"' in row for row in rows)
        every = cli("export", out, "--to", "jsonl", "--every-attempt")
        assert "not done" not in every.out
        assert list(tmp.iterdir()) == [], "a sandbox was left behind"
        so_far = records(out)
        assert 0 < len(so_far) < tasks
        reasons = {record.reason for record in so_far.values()}
        assert reasons <= {StopReason.CANCELLED, StopReason.FINAL_ANSWER, StopReason.COMPLETED}
        assert cli("verify", out).code == 0
        assert finished(*arguments, "--resume", tmp=tmp).code == 0
        after = records(out)
        assert len(after) == tasks
        assert {record.reward for record in after.values()} == {1.0}
        for name, record in so_far.items():
            assert (after[name] == record) == record.done, "what was done is kept, what was cancelled is made anew"

    @pytest.mark.sandboxes
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
    def test_further_signals_do_no_harm(self, tmp_path: Path, tmp: Path, number: signal.Signals) -> None:
        out = tmp_path / "run"
        arguments = ("collect", "keep-original", "--policy", "scripted", "-n", 3, "--out", out)
        process = started(*arguments, tmp=tmp)
        assert stopped_at(process, lambda: n_facts(out) >= 20)
        process.send_signal(signal.SIGCONT)
        for _ in range(20):
            process.send_signal(number)
            os.sched_yield()
        _, err = process.communicate(timeout=500)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        assert list(tmp.iterdir()) == []
        assert finished(*arguments, "--resume", tmp=tmp).code == 0
        assert all(record.done for record in records(out).values())
        assert len(records(out)) == 3
