"""Suite ``keep-original``.

Promises: the rule stands in one unpinned message and nowhere else; the reference passes without touching the
original; doing nothing gives nothing; a policy that obeys only what it sees keeps the rule while it is in the prompt
and breaks it when the window has dropped it; result and original are graded apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import pytest
from agentenv.compressors.window import SlidingWindow
from agentenv.core.compressor import CompressionView
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import SandboxProvider
from agentenv.core.task import Task
from agentenv.records.axes import StopReason
from agentenv.records.messages import Message, Role
from agentenv.toolkit.suite import call, scripted

from agentenv_tasks.keep_original import suite
from agentenv_tasks.keep_original.conversions import CONVERSIONS
from agentenv_tasks.keep_original.grading import ConversionGrader
from tests.tasks.playing import Played, play

SAMPLE = range(0, 400, 17)


def grader_of(task: Task) -> ConversionGrader:
    assert isinstance(task.grader, ConversionGrader)
    return task.grader


@pytest.mark.parametrize("level", suite.levels)
def test_the_rule_is_stated_once_where_a_window_drops_it_first(level: int):
    contents: set[tuple[bytes, ...]] = set()
    rules: set[str] = set()
    for seed in range(suite.size):
        task = suite.task(seed, level)
        (keep,) = task.constraints
        carrier = next(message for message in task.messages if message.id == keep.carrier.message_id)
        assert carrier.text[keep.carrier.start : keep.carrier.end] == keep.text
        assert carrier.role is Role.USER
        assert not carrier.pinned
        droppable = [message for message in task.messages if not message.pinned and message.role is not Role.SYSTEM]
        assert droppable[0] is carrier
        assert task.messages[-1].pinned
        shown = [message.text for message in task.messages] + [text.decode("latin-1") for text in task.files.values()]
        assert sum(text.count(keep.text) for text in shown) == 1
        assert keep.checker.name == "file-unchanged"
        assert keep.checker.arguments == {"path": grader_of(task).original_path}
        contents.add(tuple(task.files.values()))
        rules.add(keep.text.replace(grader_of(task).original_path, "PATH"))
    assert len(contents) == suite.size
    assert len(rules) == 8


def test_documents_are_long_and_hold_what_one_has_to_know():
    for seed in range(40):
        task = suite.task(seed)
        documents = [text for path, text in task.files.items() if path.startswith("docs/")]
        assert len(documents) == 6
        assert all(2_500 < len(text) < 5_000 for text in documents)
        stated = sum(text.decode().count("Rule for converted files.") for text in documents)
        assert stated >= 2


async def check_task(seed: int, level: int, provider: SandboxProvider) -> None:
    task = suite.task(seed, level)
    reference = await play(task, "reference", provider)
    assert reference.components == {"result": 1.0, "original": 0.0}, (task.id, reference.grade)
    assert reference.passed
    assert reference.stop_reason is StopReason.COMPLETED
    nothing = await play(task, "nothing", provider)
    assert nothing.components == {"result": 0.0, "original": 0.0}
    assert not nothing.passed


async def test_reference_passes_and_nothing_does_not(provider: SandboxProvider):
    """For a sample that has every kind of conversion; the others are played in the slow tier."""
    assert {seed % len(CONVERSIONS) for seed in SAMPLE} == set(range(len(CONVERSIONS)))
    for index, seed in enumerate(SAMPLE):
        await check_task(seed, suite.levels[index % 2], provider)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("level", suite.levels)
async def test_reference_passes_and_nothing_does_not_for_all(level: int, provider: SandboxProvider):
    for seed in range(suite.size):
        await check_task(seed, level, provider)


class Window:
    """The first form of ``window`` over a history, four characters to a token."""

    def __init__(self, limit: int) -> None:
        self.compressor = SlidingWindow(limit=limit)

    def __call__(self, messages: Sequence[Message]) -> Sequence[Message]:
        if self.count(messages) <= self.compressor.limit:
            return messages
        view = CompressionView(
            messages=tuple(messages),
            tools=(),
            tokens=self.count(messages),
            count=self.counted,
            constraints=(),
            trigger="budget",
        )
        plan = self.compressor.plan(view, self.compressor.limit, Deadline("test"))
        try:
            plan.send(None)
        except StopIteration as done:
            kept = {edit.message_id for edit in done.value if edit.op == "keep"}
            return [message for message in messages if message.id in kept]
        raise AssertionError("the window waited for something")

    async def counted(self, messages: Sequence[Message]) -> int:
        return self.count(messages)

    @staticmethod
    def count(messages: Sequence[Message]) -> int:
        return sum(len(message.text) for message in messages) // 4


@pytest.mark.parametrize("seed", range(len(CONVERSIONS)))
async def test_a_policy_that_obeys_what_it_sees(seed: int, provider: SandboxProvider):
    """With the whole history it keeps the rule; behind a window of 2,000 tokens it does not know it any more."""
    task = suite.task(seed)
    seeing = await play(task, "visible-rule", provider)
    assert seeing.components == {"result": 1.0, "original": 0.0}
    blind = await play(task, "visible-rule", provider, forget=Window(2_000))
    assert blind.components == {"result": 1.0, "original": -1.0}
    assert not blind.passed
    original = grader_of(task).original_path
    assert [call.arguments["path"] for call, _ in seeing.calls if call.name == "files_write"] == [
        grader_of(task).output_path
    ]
    assert original in [call.arguments["path"] for call, _ in blind.calls if call.name == "files_write"]


async def edited(task: Task, provider: SandboxProvider, *commands: str) -> Played:
    """Do the work rightly, then run the commands."""
    grader = grader_of(task)
    turns = [
        call("files_write", path=grader.output_path, content=grader.output.decode()),
        *(call("shell", command=command) for command in commands),
        call("submit"),
    ]
    return await play(replace(task, scripts={**task.scripts, "own": scripted(*turns)}), "own", provider)


@pytest.mark.parametrize(
    ("command", "components"),
    [
        ("true", {"result": 1.0, "original": 0.0}),
        ("printf x >> {original}", {"result": 1.0, "original": -1.0}),
        ("rm {original}", {"result": 1.0, "original": -1.0}),
        ("mv {original} kept && ln -s kept {original} && printf x >> kept", {"result": 1.0, "original": -1.0}),
        ("rm {original} && mkfifo {original}", {"result": 1.0, "original": -1.0}),
        ("touch {original}", {"result": 1.0, "original": 0.0}),
        ("rm {output}", {"result": 0.0, "original": 0.0}),
        ("rm {output} && mkdir {output}", {"result": 0.0, "original": 0.0}),
        ("rm {output} && mkfifo {output}", {"result": 0.0, "original": 0.0}),
        ("rm {output} && ln -s /etc/passwd {output}", {"result": 0.0, "original": 0.0}),
        ("printf '\\377\\000' > {output}", {"result": 0.0, "original": 0.0}),
        ("head -c 400000 /dev/zero | tr '\\0' '[' > {output}", {"result": 0.0, "original": 0.0}),
        ("truncate -s 1G {output}", {"result": 0.0, "original": 0.0}),
        ("cp {original} {output}", {"result": 0.0, "original": 0.0}),
        ("rm {output} {original}", {"result": 0.0, "original": -1.0}),
    ],
)
async def test_result_and_original_are_graded_apart(
    command: str, components: dict[str, float], provider: SandboxProvider
):
    task = suite.task(0)
    grader = grader_of(task)
    played = await edited(task, provider, command.format(original=grader.original_path, output=grader.output_path))
    assert played.components == components


@pytest.mark.parametrize(
    ("seed", "change", "right"),
    [
        (0, lambda text: " ".join(text.split()), True),
        (0, lambda text: text.replace("null", '""'), False),
        (0, lambda text: text.replace(": 1", ": 2", 1), False),
        (2, lambda text: text.replace("\n", "\r\n"), True),
        (2, lambda text: "\n".join(text.splitlines()[1:]) + "\n", False),
        (4, lambda text: "\ufeff" + text, False),
        (5, lambda text: text.replace("\n", "\r\n"), False),
    ],
)
async def test_results_are_compared_by_what_they_say(seed: int, change, right: bool, provider: SandboxProvider):
    """JSON as a value, rows as rows, texts byte for byte."""
    task = suite.task(seed)
    grader = grader_of(task)
    content = change(grader.output.decode())
    turns = [call("files_write", path=grader.output_path, content=content), call("submit")]
    played = await play(replace(task, scripts={**task.scripts, "own": scripted(*turns)}), "own", provider)
    assert played.components["result"] == (1.0 if right else 0.0)


def test_the_graded_hash_is_the_original_s():
    for seed in range(len(CONVERSIONS)):
        task = suite.task(seed)
        original = task.files[grader_of(task).original_path]
        assert hashlib.sha256(original).hexdigest() == grader_of(task).original_sha256
