"""``notes``: kept through compactions, bounded, and out of the way of what is graded."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agentenv.core.task import Task
from agentenv.core.tool import ToolContext
from agentenv.errors import ConfigError
from agentenv.records.axes import CallStatus, Outcome
from agentenv.records.facts import ActionTaken
from agentenv.records.messages import ToolResult
from agentenv.records.tokens import unpack_ids
from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.storage.run_folder import RunFolder
from agentenv.toolkit import FunctionTool, tool
from agentenv.toolkit.suite import Variant, call, exact_answer, messages, scripted

from agentenv_tools.notes import notes, notes_tool
from tests.rollout.kit import audited, collect, renderer, suite_of
from tests.toolkit.kit import call_one, make_context

NOTE = "the number is 7391"


async def keep(context: ToolContext, action: str, note: str = "", tool: FunctionTool = notes) -> ToolResult:
    arguments: dict[str, Any] = {"action": action, **({"note": note} if note else {})}
    return await call_one(tool, context, **arguments)


async def test_what_is_noted_can_be_read_added_to_and_replaced() -> None:
    context = make_context()
    assert (await keep(context, "read")).text == "[there are no notes]"
    assert (await keep(context, "append", "one")).text == "Kept: the notes take 3 of 8,192 bytes."
    await keep(context, "append", "two\n")
    await keep(context, "append", "drei ü")
    read = await keep(context, "read")
    assert (read.status, read.text) == (CallStatus.OK, "one\ntwo\ndrei ü")
    data = read.text.encode()
    assert read.value == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    await keep(context, "replace", "new")
    assert (await keep(context, "read")).text == "new"
    await keep(context, "replace")
    assert (await keep(context, "read")).text == "[there are no notes]"


async def test_notes_over_the_cap_are_refused_and_stay_as_they_were() -> None:
    context, small = make_context(), notes_tool(cap_bytes=10)
    await keep(context, "append", "ääää", small)
    for action, text in (("append", "xy"), ("replace", "x" * 11)):
        refused = await keep(context, action, text, small)
        assert refused.status is CallStatus.ERROR
        assert "the notes would take 11 bytes, 10 are allowed" in refused.text
    assert (await keep(context, "append", "x", small)).status is CallStatus.OK
    assert (await keep(context, "read", tool=small)).text == "ääää\nx"


@pytest.mark.parametrize(
    ("action", "text", "says"),
    [
        ("append", "", 'argument "note" is missing'),
        ("read", "x", "not for reading"),
        ("append", "\ud800", "lone surrogate"),
        ("append", "\0", "NUL"),
        ("erase", "", 'one of "append", "read", "replace"'),
    ],
)
async def test_calls_that_mean_nothing_are_told(action: str, text: str, says: str) -> None:
    result = await keep(make_context(), action, text)
    assert result.status is CallStatus.INVALID_ARGUMENTS
    assert says in result.text


async def test_two_episodes_share_no_notes() -> None:
    await keep(make_context(), "append", "mine")
    assert (await keep(make_context(), "read")).text == "[there are no notes]"


def test_room_for_nothing_is_refused_and_the_room_is_in_the_hash() -> None:
    with pytest.raises(ConfigError, match="1 byte or more"):
        notes_tool(cap_bytes=0)
    assert notes_tool(cap_bytes=5).sha256 != notes.sha256


@tool
def look(at: str) -> str:
    """Look at something that takes up room."""
    return at * 400


def remembering(draw: Variant) -> Task:
    looks = [call("look", at=letter) for letter in "abcdef"]
    return Task(
        id=draw.id,
        messages=messages("Note the number 7391 well, look around, and say it."),
        tools=(notes, look),
        grader=exact_answer("7391"),
        scripts={
            "reference": scripted(
                call("notes", action="append", note=NOTE), *looks, call("notes", action="read"), "It is 7391."
            )
        },
    )


async def test_notes_are_readable_after_the_window_compressor_has_dropped_their_turn(tmp_path: Path) -> None:
    await collect(tmp_path / "run", suite=suite_of(remembering), tasks=1, compressor="window:3000")
    (record,) = audited(tmp_path / "run").values()
    assert record.outcome is Outcome.SUCCESS
    reading = next(
        step for step in record.steps if step.parsed.calls and step.parsed.calls[0].arguments == {"action": "read"}
    )
    before = [step for step in record.steps if step.turn <= reading.turn]
    assert any(step.compactions for step in before)
    ids = unpack_ids(record.segments[reading.segment].token_ids)[: reading.prompt_length]
    assert NOTE not in renderer().tokenizer.decode(ids)
    assert reading.results[0].text == NOTE


async def test_notes_are_not_in_the_workspace(tmp_path: Path) -> None:
    """Grading and snapshots see the same files with and without them."""

    def contained(draw: Variant) -> Task:
        return replace(remembering(draw), files={"a.txt": b"1"})

    async with BwrapProvider() as provider:
        await collect(tmp_path / "run", suite=suite_of(contained), tasks=1, provider=provider)
    ((key, record),) = audited(tmp_path / "run").items()
    assert record.outcome is Outcome.SUCCESS
    with RunFolder.open(tmp_path / "run").reader() as reader:
        taken = [fact for fact in reader.facts(key) if isinstance(fact, ActionTaken)]
    assert len(taken) == len(record.steps)
    assert {fact.workspace for fact in taken} == {None}, "no action changed a file"
