"""Tools and graders that hang, flood, fork, die, raise, or write what no reader expects: the whole way through.

A user's own suite is collected in real sandboxes, shown, audited and exported. What a tool does to itself becomes an
observation; what a grader does leaves the episode unscored; nothing of it reaches a sibling.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from agentenv.records.axes import CallStatus, FaultDomain, Outcome, Scoring, StopReason
from agentenv.records.episode import EpisodeRecord

from tests.cli.kit import Cli, Said, finished, records
from tests.cli.suites.trouble import KINDS

SUITES = Path(__file__).with_name("suites") / "trouble.py"


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Said, Path, Path]]:
    """One run of every kind of trouble: what was said, the run folder, the folder for temporary files."""
    out = tmp_path_factory.mktemp("troubled") / "run"
    tmp = Path(tempfile.mkdtemp(prefix="agentenv-test-"))
    tmp.chmod(0o711)
    said = finished("collect", SUITES, "--policy", "scripted", "-n", len(KINDS), "--out", out, tmp=tmp)
    yield said, out, tmp
    shutil.rmtree(tmp)


@pytest.fixture(scope="module")
def by_kind(troubled: tuple[Said, Path, Path]) -> dict[str, EpisodeRecord]:
    _, out, _ = troubled
    return {KINDS[record.task_seed]: record for record in records(out).values()}


def test_every_episode_comes_to_its_own_end(
    troubled: tuple[Said, Path, Path], by_kind: dict[str, EpisodeRecord]
) -> None:
    """No kind of trouble is a fault: each policy went on to its answer, and was scored for it."""
    said, _, tmp = troubled
    assert said.code == 0, said.err
    assert list(by_kind) == list(KINDS)
    for kind, record in by_kind.items():
        assert (record.reason, record.fault, record.reward) == (StopReason.FINAL_ANSWER, None, 1.0), kind
        assert record.attempt == 1
    assert list(tmp.iterdir()) == [], "a sandbox was left behind"


def shown(record: EpisodeRecord) -> str:
    (message,) = record.steps[0].observation
    return message.text


@pytest.mark.parametrize(
    ("kind", "status", "says"),
    [
        ("hangs", CallStatus.TIMEOUT, "[stopped after 1.5 s]"),
        ("floods", CallStatus.TIMEOUT, "flood"),
        ("dies", CallStatus.OK, "[exit code 137]"),
        ("bytes", CallStatus.OK, "end"),
        ("unknown tool", CallStatus.UNKNOWN_TOOL, "hostile"),
    ],
)
def test_what_a_tool_did_is_told_to_the_policy(
    by_kind: dict[str, EpisodeRecord], kind: str, status: CallStatus, says: str
) -> None:
    record = by_kind[kind]
    assert record.steps[0].results[0].status is status
    assert says in shown(record)


def test_a_flood_is_kept_by_its_hash_and_shown_short(
    troubled: tuple[Said, Path, Path], by_kind: dict[str, EpisodeRecord]
) -> None:
    result = by_kind["floods"].steps[0].results[0]
    assert len(result.text.encode()) < 20_000
    assert result.bytes_dropped > 100_000
    assert result.full_output is not None
    assert result.full_output.size_bytes >= result.bytes_dropped


@pytest.mark.parametrize("kind", ["forks", "kills all", "python dies"])
def test_a_tool_that_forks_or_dies_is_an_observation(by_kind: dict[str, EpisodeRecord], kind: str) -> None:
    assert shown(by_kind[kind])
    assert by_kind[kind].steps[1].parsed.text == "The answer is 5."


@pytest.mark.parametrize("kind", ["text", "value", "bytes", "odd arguments"])
def test_every_reader_takes_any_text(troubled: tuple[Said, Path, Path], cli: Cli, kind: str) -> None:
    """Lone surrogates, NUL, escapes, invalid UTF-8, control tokens: shown, as JSON, token by token."""
    _, out, _ = troubled
    episode = f"e{KINDS.index(kind):06d}.0"
    for arguments in ((), ("--tokens",), ("--json",)):
        # In a process of its own where what is printed has to be encoded: this process's capture is not.
        said = (finished if (kind, arguments) == ("text", ("--tokens",)) else cli)("show", out, episode, *arguments)
        assert said.code == 0, said.err
        assert "\0" not in said.out or arguments == ("--json",)
        assert "\x1b[31mescape" not in said.out, "a tool coloured the reader's terminal"
    json.loads(cli("show", out, episode, "--json").out)


def test_the_whole_run_is_audited_counted_and_exported(troubled: tuple[Said, Path, Path], cli: Cli) -> None:
    _, out, _ = troubled
    for command in (("verify", out), ("stats", out), ("show", out)):
        said = cli(*command)
        assert said.code == 0, said.err
    for kind in ("jsonl", "parquet"):
        said = cli("export", out, "--to", kind)
        assert said.code == 0, said.err
        assert f"{len(KINDS)} episodes" in said.out


class TestGraders:
    def test_one_that_raises_and_one_that_hangs(self, cli: Cli, tmp_path: Path) -> None:
        """Their episodes ended as they ended, unscored; siblings are scored; the exit code says that work is left."""
        out = tmp_path / "run"
        path = tmp_path / "graders.py"
        path.write_text(f"{SUITES.read_text()}\nsuite = graders\n")
        said = cli("collect", path, "--policy", "scripted", "-n", 3, "--max-attempts", 1, "--out", out)
        assert said.code == 3
        assert "2 of 3 episodes are not done" in said.err
        good, raising, hanging = records(out).values()
        assert (good.reward, good.outcome) == (1.0, Outcome.SUCCESS)
        for record in (raising, hanging):
            assert record.reason is StopReason.FINAL_ANSWER
            assert (record.reward, record.fault_domain) == (None, FaultDomain.GRADER)
        assert (raising.scoring, hanging.scoring) == (Scoring.FAILED, Scoring.TIMED_OUT)
        assert raising.fault is not None
        assert "ZeroDivisionError: nothing to divide by" in raising.fault.message
        assert hanging.fault is not None
        assert "did not end within 0.2 s" in hanging.fault.message
        text = cli("stats", out).out
        assert "of 1 scored" in text
        assert "of all 3" in text
