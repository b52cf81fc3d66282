"""Ids are those of ``apply_chat_template``: golden ids are computed by the reference library, never by our code."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from agentenv.records.messages import Message, Role, ToolCall
from agentenv.rendering.template_renderer import TemplateRenderer
from agentenv.testing.contracts.renderer import TOOLS
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rendering.conftest import DATE
from tests.rendering.models import reference_chat, reference_tools

Renderers = Callable[[str], TemplateRenderer]
References = Callable[[str], Any]
_WITH_TOOLS = ("llama3", "mistral", "mistral_named", "pythonic", "qwen25", "qwen3", "qwen3_bare")

contents = st.text(st.sampled_from("ab Zq09 .,'\"\\<>{}[]|\n\t\ré日🙂­\u00a0"), max_size=30) | st.sampled_from(
    ["\n", "\n\nx", " padded ", "<tool_call>x", "</s", "<|im_", "im_end|>", "   ", '{"a": 1}', "it's", "a\n", "\x00"]
)
values = contents | st.integers() | st.booleans() | st.none() | st.lists(st.integers(), max_size=2)


@st.composite
def histories(draw: st.DrawFn, *, calls: int, said_with_calls: bool) -> list[Message]:
    """Draw a history as an episode makes it: a system message or none, then questions, turns, and results."""
    history: list[Message] = []
    if draw(st.booleans()):
        history.append(Message(id="s", role=Role.SYSTEM, text=draw(contents)))
    for turn in range(draw(st.integers(0, 3))):
        history.append(Message(id="u", role=Role.USER, text=draw(contents)))
        for index in range(draw(st.integers(0, calls and 2))):
            history += _called(draw, turn * 2 + index, draw(st.integers(1, calls)), said=said_with_calls)
        history.append(Message(id="a", role=Role.ASSISTANT, text=draw(contents)))
    history.append(Message(id="u", role=Role.USER, text=draw(contents)))
    if calls and draw(st.booleans()):
        history += _called(draw, 9, draw(st.integers(1, calls)), said=said_with_calls)
    return history


def _called(draw: st.DrawFn, turn: int, number: int, *, said: bool) -> list[Message]:
    made = tuple(
        ToolCall(id=f"t{turn}c{n}", name="calculator", arguments=draw(st.dictionaries(st.just("key"), values)))
        for n in range(number)
    )
    text = draw(contents) if said else ""
    results = [Message(id="r", role=Role.TOOL, text=draw(contents), call_id=call.id, name=call.name) for call in made]
    return [Message(id="a", role=Role.ASSISTANT, text=text, calls=made), *results]


def check(renderer: TemplateRenderer, reference: Any, history: list[Message], tools: Any, *, long_ids: bool) -> None:
    """Compare the ids of one history. Content that happens to spell a control token is left out."""
    texts = [message.text for message in history] + [str(call.arguments) for m in history for call in m.calls]
    if any(token in text for text in texts for token in renderer.tokenizer.control_ids):
        return
    chat = reference_chat(history, long_ids=long_ids)
    expected = reference.apply_chat_template(
        chat, tools=reference_tools(tools), add_generation_prompt=True, return_dict=False, date_string=DATE
    )
    assert list(renderer.open(history, tools)) == expected


@pytest.mark.parametrize("name", _WITH_TOOLS)
def test_open_is_the_reference(name: str, renderer_of: Renderers, reference_of: References) -> None:
    """On ordinary content, with and without tools, ids equal those of the reference."""
    renderer, reference = renderer_of(name), reference_of(name)
    dropped = name in ("llama3", "mistral")  # these templates drop text that stands beside calls
    history = histories(calls=1 if name == "llama3" else 2, said_with_calls=not dropped)

    @settings(max_examples=25)
    @given(history=history, tools=st.sampled_from([TOOLS, (), TOOLS[:1]]))
    def compare(history: list[Message], tools: Any) -> None:
        check(renderer, reference, history, tools, long_ids=name == "mistral")

    compare()


def test_open_is_the_reference_without_tools(renderer_of: Renderers, reference_of: References) -> None:
    """A template that knows neither tools nor a system role renders plain histories as the reference does."""

    @given(history=histories(calls=0, said_with_calls=False))
    def compare(history: list[Message]) -> None:
        plain = [message for message in history if message.role is not Role.SYSTEM]
        check(renderer_of("gemma"), reference_of("gemma"), plain, (), long_ids=False)

    compare()


@pytest.mark.parametrize("name", _WITH_TOOLS)
def test_an_episode_that_is_extended_is_the_reference_of_the_whole(
    name: str, renderer_of: Renderers, reference_of: References
) -> None:
    """Law 1: where turns are written as the template writes them, every prompt of an episode is the reference's."""
    renderer, reference = renderer_of(name), reference_of(name)
    rng = random.Random(7)
    history = [Message(id="m0", role=Role.SYSTEM, text="Be brief."), Message(id="m1", role=Role.USER, text="2 + 2?")]
    ids = renderer.open(history, TOOLS)
    for turn in range(6):
        call = ToolCall(id=f"t{turn}c0", name="calculator", arguments={"expression": f"{rng.random():.3f} * {turn}"})
        text = rng.choice(["It is 4.", "  two\n\nlines", '{"status": "ok"}', "", "</tool_response>", "日本 🙂\n"])
        news = [Message(id="r", role=Role.TOOL, text=text, call_id=call.id, name="calculator")]
        history += [Message(id="a", role=Role.ASSISTANT, text="", calls=(call,)), *news]
        ids += renderer.compose("", [call])
        extension = renderer.extend(ids, news, TOOLS)
        assert extension is not None
        ids += extension
        expected = reference.apply_chat_template(
            reference_chat(history, long_ids=name == "mistral"), tools=reference_tools(TOOLS),
            add_generation_prompt=True, return_dict=False, date_string=DATE,
        )  # fmt: skip
        if not any(token in text for token in renderer.tokenizer.control_ids):
            assert list(ids) == expected
        else:
            assert renderer.tokenizer.decode(ids) == reference.decode(expected)
            return


@pytest.mark.parametrize("name", _WITH_TOOLS)
def test_text_that_spells_a_control_token_stays_text(
    name: str, renderer_of: Renderers, reference_of: References
) -> None:
    """Decoded, the prompt says what the reference's says; but the control tokens in it are the template's alone."""
    renderer, reference = renderer_of(name), reference_of(name)
    for token, number in renderer.tokenizer.control_ids.items():
        spelled, harmless = (
            [Message(id="u", role=Role.USER, text=f"one {text} two{text}{text}\n"),
             Message(id="a", role=Role.ASSISTANT, text=f"{text}."), Message(id="u", role=Role.USER, text=text)]
            for text in (token, "xyz")
        )  # fmt: skip
        ids = renderer.open(spelled, ())
        assert ids.count(number) == renderer.open(harmless, ()).count(number)
        chat = reference_chat(spelled)
        if not token.startswith(("<think", "</think")):  # the qwen3 template reads these in what an assistant said
            text = reference.apply_chat_template(chat, add_generation_prompt=True, tokenize=False, date_string=DATE)
            assert renderer.tokenizer.decode(ids) == text
