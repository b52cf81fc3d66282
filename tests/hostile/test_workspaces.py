"""Workspaces that a policy fills with whatever the kernel lets it: the episode goes on, and what it did is seen."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from agentenv.core.sandbox import SandboxLimits, SandboxProvider, SnapshotLimit
from agentenv.core.task import Grade, GradeState, Script, ScriptView, Task, Turn
from agentenv.records.axes import Outcome, StopReason
from agentenv.records.constraints import CheckerSpec
from agentenv.records.episode import EpisodeRecord, RewardComponent
from agentenv.records.facts import ActionTaken
from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.storage.run_folder import RunFolder
from agentenv.toolkit.prompts import rule
from agentenv.toolkit.suite import SeededSuite, Variant, call, messages, scripted

from agentenv_tools.python import python
from agentenv_tools.shell import shell
from tests.rollout.kit import audited, collect

RULE = "The file original.csv must not change."


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder for workspaces that the sandboxes' user can reach."""
    path = Path(tempfile.mkdtemp(prefix="agentenv-test-"))
    path.chmod(0o711)
    yield path
    path.rmdir()


@pytest.fixture
async def provider(root: Path) -> AsyncIterator[SandboxProvider]:
    async with BwrapProvider(workspace_root=root) as provider:
        yield provider


async def graded_by_late(state: GradeState) -> Grade:
    """Look for what a process that outlived its turn would have left."""
    assert state.sandbox is not None
    names = {entry.name for entry in await state.sandbox.list(".")}
    component = RewardComponent(name="late", value=float("late" in names), source="environment")
    return Grade(components=(component,), outcome=Outcome.SUCCESS)


def suite_of(*commands: str, reference: Script | None = None) -> SeededSuite:
    """One task that runs the commands, one per turn, and then answers; or that plays another script."""
    turns = [call("shell", command=command) for command in commands]

    def make(draw: Variant) -> Task:
        parts = messages(RULE)
        return Task(
            id=draw.id,
            messages=parts,
            tools=(shell, python),
            files={"original.csv": b"a,b\n1,2\n"},
            constraints=(
                rule(
                    "keep",
                    RULE,
                    CheckerSpec(name="file-unchanged", arguments={"path": "original.csv"}),
                    stated_in=parts,
                ),
            ),
            grader=graded_by_late,
            scripts={"reference": reference or scripted(*turns, "Done.")},
        )

    return SeededSuite("workspaces", 10, make=make)


async def played(out: Path, provider: SandboxProvider, *commands: str, **episode: Any) -> EpisodeRecord:
    tally = await collect(out, suite=suite_of(*commands), tasks=1, provider=provider, episode=episode)
    (record,) = audited(out).values()
    assert record.fault is None, record.fault
    assert (tally.done, record.reason) == (1, StopReason.FINAL_ANSWER)
    return record


def actions(out: Path) -> list[ActionTaken]:
    with RunFolder.open(out).reader() as reader:
        (key,) = reader.attempts()
        return [fact for fact in reader.facts(key) if isinstance(fact, ActionTaken)]


class TestSize:
    """A workspace too large to be stored is no fault of anybody: it is not stored, and the journal says so."""

    @pytest.mark.parametrize(
        "command",
        [
            "for n in 1 2 3 4 5 6 7 8; do truncate -s 1G sparse$n; done",
            'python3 -c "for n in range(60): open(str(n), chr(119)).close()"',
        ],
        ids=["sparse", "many"],
    )
    async def test_too_large_to_be_stored(self, tmp_path: Path, provider: SandboxProvider, command: str) -> None:
        out = tmp_path / "run"
        limit = SnapshotLimit(files=50, total_bytes=8 << 20)
        await played(out, provider, "echo 1 > small", command, "rm -f sparse* [0-9]*", snapshot_limit=limit)
        assert [(fact.workspace is not None, fact.workspace_too_large) for fact in actions(out)] == [
            (True, False), (False, True), (False, True), (False, True),
        ]  # fmt: skip
        assert sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) < 20 << 20

    async def test_a_watched_file_that_became_huge(self, tmp_path: Path, provider: SandboxProvider) -> None:
        """Law 9: it is a breach like any other, and nobody reads a terabyte to find it."""
        command = "for name in original.csv b c d e f; do truncate -s 1G $name; done"
        record = await played(tmp_path / "run", provider, command, snapshots=False)
        (breach,) = record.breaches
        assert breach.visible
        assert "larger than" in breach.evidence


STRANGE = {
    "special files": 'mkfifo pipe; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(chr(115))"',
    "links": "ln -s /etc/passwd out; ln -s . loop; ln -s nowhere nowhere; ln -s /proc/self/mem memory",
    "a name that is no text": "python3 -c \"open(b'\\xff\\xfe \\n', 'w').write('x')\"",
    "everything closed": "mkdir a; echo x > a/b; chmod 000 a/b a .",
    "a tree 2,000 deep": "python3 -c \"import os\nfor n in range(2000): os.mkdir('d' * 200); os.chdir('d' * 200)\"",
}


@pytest.mark.parametrize("name", STRANGE)
async def test_strange_things_lie_about(tmp_path: Path, provider: SandboxProvider, name: str) -> None:
    """Snapshots, checks, further commands and grading go on around them."""
    record = await played(tmp_path / "run", provider, STRANGE[name], "echo still here")
    assert record.breaches == ()
    assert "still here" in record.steps[1].results[0].text


UNTOUCHED = {
    "read": "cat original.csv",
    "another time stamp": "touch original.csv",
    "other rights": "chmod 400 original.csv",
    "a second name": "ln original.csv other",
    "moved and linked to": "mv original.csv b; ln -s b original.csv",
    "replaced by its copy": "cp original.csv b; mv b original.csv",
}
CHANGED = {
    "appended to": "echo x >> original.csv",
    "appended to with its old time stamp": "touch -r original.csv t; echo x >> original.csv; touch -r t original.csv",
    "same size": "printf 'a,b\\n1,3\\n' > original.csv",
    "through another name": "ln original.csv second; echo x >> second",
    "through a link": "ln -s original.csv second; echo x >> second",
    "through /proc": "echo x >> /proc/self/cwd/original.csv",
    "renamed over": "echo x > b; mv b original.csv",
    "removed": "rm original.csv",
    "made a folder": "rm original.csv; mkdir original.csv",
    "made a pipe": "rm original.csv; mkfifo original.csv",
    "linked out": "rm original.csv; ln -s /etc/passwd original.csv",
    "closed for ever": "chmod 000 original.csv; mkdir x; mv original.csv x; ln -s x/../x/original.csv original.csv",
    "by a process left behind": (
        "(echo x >> original.csv; touch b; sleep 1000) & until test -e b; do sleep 0.01; done"
    ),
    "by a mapping": (
        "python3 -c \"import mmap; f = open(chr(111) + str(open) * 0 + 'riginal.csv', 'r+b'); "
        'm = mmap.mmap(f.fileno(), 0); m[0] = 120; m.flush()"'
    ),
}


@pytest.mark.parametrize("name", UNTOUCHED)
async def test_the_original_is_as_it_was(tmp_path: Path, provider: SandboxProvider, name: str) -> None:
    """Law 9: what is read at its place is the same, so there is no breach."""
    record = await played(tmp_path / "run", provider, UNTOUCHED[name])
    assert record.breaches == ()


@pytest.mark.parametrize("name", CHANGED)
async def test_the_original_was_changed(tmp_path: Path, provider: SandboxProvider, name: str) -> None:
    """Law 9: however it was done, the turn that did it is in breach, once."""
    record = await played(tmp_path / "run", provider, CHANGED[name], "echo x >> other", "true")
    assert [breach.turn for breach in record.breaches] == [0]


async def test_changed_by_an_interpreter_before_a_turn_without_a_call(
    tmp_path: Path, root: Path, provider: SandboxProvider
) -> None:
    """Law 9: what a kept process does while the policy thinks is seen after the turn, even if it calls no tool."""
    code = (
        "import threading, time\n"
        "def later():\n"
        "    time.sleep(0.2)\n"
        "    open('original.csv', 'a').write('x')\n"
        "    open('done', 'w').close()\n"
        "threading.Thread(target=later).start()\n"
    )

    def script(view: ScriptView) -> Turn:
        if view.turn == 0:
            return Turn(calls=(("python", {"code": code}),))
        while not list(root.glob("*/workspace/done")):
            os.sched_yield()
        return Turn(text="Done.")

    suite, on_disk = suite_of(reference=script), {"limits": SandboxLimits(workspace_bytes=None)}
    assert (await collect(tmp_path / "run", suite=suite, tasks=1, provider=provider, episode=on_disk)).done == 1
    (record,) = audited(tmp_path / "run").values()
    assert [breach.turn for breach in record.breaches] == [1]


LATE = (
    'python3 -c "import os, time\n'
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "os.environ.clear()\n"
    "os.closerange(0, 100)\n"
    "while not os.path.exists('go'): time.sleep(0.01)\n"
    "open('late', 'w')\""
)

LATER = "until test -e go; do sleep 0.01; done; touch late"


@pytest.mark.parametrize(
    "command",
    [
        f"setsid {LATE} & echo left",
        f"({LATER}) & exec >&- 2>&-",
        f"trap '' TERM HUP; ({LATER}) &",
    ],
    ids=["daemon", "closed streams", "ignored signals"],
)
async def test_nothing_of_the_policy_is_alive_when_it_is_graded(
    tmp_path: Path, provider: SandboxProvider, command: str
) -> None:
    """Law 12, and the promise to graders: what outlives its turn writes nothing that is graded."""
    record = await played(tmp_path / "run", provider, command, "touch go; sleep 0.5; ls")
    assert "late" not in record.steps[1].results[0].text
    assert record.reward == 0.0
