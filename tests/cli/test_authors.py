"""Who put which text into a prompt, as ``agentenv show`` colours it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agentenv.cli.episode_view import STYLES, TEMPLATE, added_messages, pieces
from agentenv.records.episode import EpisodeRecord
from agentenv.records.messages import Role
from agentenv.records.tokens import unpack_ids
from agentenv.toolkit.function_tool import tool
from agentenv.toolkit.suite import Task, Turn, Variant, messages, scripted, system

from tests.rollout.kit import audited, collect, renderer, suite_of


@tool
def report() -> str:
    """Report."""
    return "I saw It. I, too. " * 12


def chatty(draw: Variant) -> Task:
    """Make a task whose short texts occur inside its longer ones."""
    return Task(
        id=draw.id,
        messages=messages(system("Be kind. I mean It."), "I ask: what is It?"),
        tools=(report,),
        scripts={"reference": scripted(*[_says("I")] * 4, "It")},
    )


def _says(text: str) -> Turn:
    return Turn(text=text, calls=(("report", {}),))


def prompts(record: EpisodeRecord) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Give what each prompt added, and its pieces."""
    at: dict[int, int] = {}
    for step, added in zip(record.steps, added_messages(record), strict=True):
        ids = unpack_ids(record.segments[step.segment].token_ids)
        text = renderer().tokenizer.decode(ids[at.get(step.segment, 0) : step.prompt_length])
        yield text, [(piece.text, piece.style) for piece in pieces(text, added)]
        at[step.segment] = step.prompt_length + step.completion_length


async def test_an_older_message_is_not_found_in_a_newer_text(tmp_path: Path) -> None:
    """A prompt that goes on adds the observation and the template; nothing in it is the assistant's or the user's."""
    await collect(tmp_path / "run", suite=suite_of(chatty), tasks=1)
    (record,) = audited(tmp_path / "run").values()
    first, *later = prompts(record)
    own = [text for text, style in first[1] if style != TEMPLATE]
    assert own == [message.text for message in record.messages[:2]]
    assert len(later) == 4
    for step, (_, parts) in zip(record.steps, later, strict=False):
        coloured = [(text, style) for text, style in parts if style != TEMPLATE]
        assert coloured == [(message.text, STYLES[Role.TOOL]) for message in step.observation]


@pytest.mark.parametrize("compressor", ["window:700", "none"])
async def test_pieces_are_the_whole_prompt_and_every_new_message_is_in_them(tmp_path: Path, compressor: str) -> None:
    """Also where a compressor rewrote the history: the prompt that opens a segment has the whole window."""
    await collect(tmp_path / "run", suite=suite_of(chatty), tasks=1, compressor=compressor)
    (record,) = audited(tmp_path / "run").values()
    assert (len(record.segments) > 1) is (compressor != "none")
    added = list(added_messages(record))
    for messages_of, (text, parts) in zip(added, prompts(record), strict=True):
        assert "".join(piece for piece, _ in parts) == text
        assert len([style for _, style in parts if style != TEMPLATE]) == len([m for m in messages_of if m.text])
