"""When extending is proved and when it is declined; each known way of losing token identity has a test here.

Reported failures of other projects that these stand for: merges that differ from the sampled splits, tool calls
written anew, white space trimmed around a turn, reasoning taken out of the history, control tokens doubled at a
border, and an end of turn that was added by a template and never sampled.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from agentenv.records.messages import Message, Role, ToolCall
from agentenv.rendering.loading import load_renderer
from agentenv.rendering.template_renderer import TemplateRenderer
from agentenv.testing.contracts.renderer import TOOLS

Renderers = Callable[[str], TemplateRenderer]
ASKED = [Message(id="m0", role=Role.SYSTEM, text="Be brief."), Message(id="m1", role=Role.USER, text="2 + 2?")]
CALL = ToolCall(id="t0c0", name="calculator", arguments={"expression": "2 + 2"})
RESULT = [Message(id="m3", role=Role.TOOL, text="4", call_id="t0c0", name="calculator")]
ERROR = [Message(id="m3", role=Role.TOOL, text="That is no tool call.")]
USER = [Message(id="m4", role=Role.USER, text="And 3 + 3?")]
CALLED = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2 + 2"}}\n</tool_call><|im_end|>'
THOUGHT = "<think>\nAdd them.\n</think>\n\n"


def sampled(renderer: TemplateRenderer, text: str) -> array[int]:
    """Give the ids after a policy sampled ``text``, control tokens in it included."""
    return renderer.open(ASKED, TOOLS) + renderer.tokenizer.encode(text)


def extended(renderer: TemplateRenderer, text: str, news: list[Message]) -> str | None:
    """Give the text of the extension."""
    ids = renderer.extend(sampled(renderer, text), news, TOOLS)
    return None if ids is None else renderer.tokenizer.decode(ids)


@pytest.mark.parametrize("name", ["qwen3", "qwen3_bare"])
class TestReasoningIsTakenOut:
    """Qwen 3 keeps reasoning up to the next question and takes it out then."""

    def test_results_extend_a_turn_with_reasoning(self, name: str, renderer_of: Renderers) -> None:
        assert extended(renderer_of(name), THOUGHT + CALLED, RESULT) == (
            "\n<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
        )

    def test_a_parse_error_extends_a_turn_with_reasoning(self, name: str, renderer_of: Renderers) -> None:
        assert extended(renderer_of(name), THOUGHT + "hm<|im_end|>", ERROR) is not None

    @pytest.mark.parametrize("text", [THOUGHT + "It is 4.<|im_end|>", "<think>\nAdd", "x</think>y<|im_end|>"])
    def test_a_question_after_reasoning_is_declined(self, name: str, text: str, renderer_of: Renderers) -> None:
        renderer = renderer_of(name)
        assert extended(renderer, text, USER) is None
        assert "drops part of it" in renderer.why_not(sampled(renderer, text), USER, TOOLS)

    def test_a_question_after_a_turn_without_reasoning_extends(self, name: str, renderer_of: Renderers) -> None:
        assert extended(renderer_of(name), "It is 4.<|im_end|>", USER) is not None

    def test_a_question_is_declined_if_an_earlier_turn_has_reasoning(self, name: str, renderer_of: Renderers) -> None:
        renderer = renderer_of(name)
        ids = sampled(renderer, THOUGHT + CALLED)
        extension = renderer.extend(ids, RESULT, TOOLS)
        assert extension is not None
        ids += extension + renderer.tokenizer.encode("It is 4.<|im_end|>")
        assert renderer.extend(ids, USER, TOOLS) is None

    def test_a_reminder_as_the_user_after_a_result_is_declined_too(self, name: str, renderer_of: Renderers) -> None:
        renderer = renderer_of(name)
        assert extended(renderer, THOUGHT + CALLED, [*RESULT, *USER]) is None
        assert extended(renderer, CALLED, [*RESULT, *USER]) is not None


def test_text_that_spells_reasoning_is_no_reasoning(renderer_of: Renderers) -> None:
    """A user who writes </think> does not make later turns decline: the spelling is no token of that kind."""
    renderer = renderer_of("qwen3")
    spelled = [Message(id="u", role=Role.USER, text="What does </think> mean?")]
    ids = renderer.open(spelled, TOOLS) + renderer.tokenizer.encode("A tag.<|im_end|>")
    assert renderer.extend(ids, USER, TOOLS) is not None


def test_an_empty_thought_written_by_the_prompt_is_declined(model_folder: Callable[[str], Path]) -> None:
    """Told not to think, Qwen 3 writes an empty thought into the prompt and leaves it out of the history."""
    renderer = load_renderer(model_folder("qwen3"), template_arguments={"enable_thinking": False})
    assert renderer.tokenizer.decode(renderer.open(ASKED, TOOLS)).endswith("<think>\n\n</think>\n\n")
    assert extended(renderer, CALLED, RESULT) is None


def test_a_prompt_that_opens_a_thought(model_folder: Callable[[str], Path]) -> None:
    """Where the prompt ends with <think>, a reply begins inside it; results extend, a question does not."""
    renderer = load_renderer(model_folder("qwen3"), template_arguments={"always_thinking": True})
    assert extended(renderer, "Add them.\n</think>\n\n" + CALLED, RESULT) is not None
    assert extended(renderer, "Add them.\n</think>\n\nIt is 4.<|im_end|>", USER) is None
    turn = renderer.parse(renderer.tokenizer.encode("Add them.\n</think>\n\nIt is 4.<|im_end|>"), 0)
    assert (turn.reasoning, turn.text) == ("Add them.", "It is 4.")
    unfinished = renderer.parse(renderer.tokenizer.encode("Add them and"), 0)
    assert (unfinished.reasoning, unfinished.text, unfinished.closed) == ("Add them and", "", False)
    assert renderer.parse(renderer.compose("Yes.", [CALL]), 0).calls == (CALL,)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name":"calculator","arguments":{"expression":"2 + 2"}}</tool_call><|im_end|>',
        '  \n<tool_call>\n{"arguments": {"expression": "2 + 2"}, "name": "calculator"}\n</tool_call> \n\n<|im_end|>',
        "  I add.\n\n\n" + CALLED,
    ],
)
def test_what_was_sampled_stays_however_it_is_written(text: str, renderer_of: Renderers) -> None:
    """Calls written anew and white space trimmed would change sampled ids: they are never rendered again."""
    renderer = renderer_of("qwen25")
    assert extended(renderer, text, RESULT) == extended(renderer, CALLED, RESULT)


@pytest.mark.parametrize("name", ["qwen25", "qwen3", "llama3", "pythonic", "gemma"])
def test_no_control_token_is_doubled_at_the_border(name: str, renderer_of: Renderers) -> None:
    """Whether the end was sampled or not, there is one end of turn between the turn and what follows."""
    renderer = renderer_of(name)
    end = renderer.stop_token_ids[0]
    prompt, turn = renderer.open(ASKED[1:], ()), renderer.compose("It is 4.", [])
    for said in (turn, turn[:-1]):
        extension = renderer.extend(prompt + said, USER, ())
        assert extension is not None
        assert list((said + extension)[len(turn) - 1 : len(turn) + 1]).count(end) == 1
        assert (said + extension).count(end) == 2  # the turn's and the question's


@pytest.mark.parametrize("name", ["qwen25", "qwen3"])
def test_the_newline_after_a_turn_is_in_the_extension(name: str, renderer_of: Renderers) -> None:
    """Templates write a newline after the end token; the policy never samples it."""
    text = extended(renderer_of(name), "It is 4.<|im_end|>", USER)
    assert text is not None
    assert text.startswith("\n<|im_start|>user\n")


def test_another_end_token_than_the_template_writes_is_declined(renderer_of: Renderers) -> None:
    """Llama 3 may end a turn with <|eom_id|>, which stops the engine but is not what the template writes."""
    renderer = renderer_of("llama3")
    ids = sampled(renderer, '{"name": "calculator", "parameters": {}}<|eom_id|>')
    assert renderer.stop_token_ids == (5, 1, 4)
    assert renderer.extend(ids, RESULT, TOOLS) is None
    assert "ended with id 4, the template ends turns with 5" in renderer.why_not(ids, RESULT, TOOLS)
    assert renderer.parse(ids[-3:], 0).closed


def test_tools_that_move_with_the_question_are_declined(renderer_of: Renderers) -> None:
    """Mistral shows tools before the last question only; a new question moves them. Without tools nothing moves."""
    renderer = renderer_of("mistral")
    ids = renderer.open(ASKED, TOOLS) + renderer.compose("It is 4.", [])
    assert renderer.extend(ids, USER, TOOLS) is None
    assert "rewrites earlier turns" in renderer.why_not(ids, USER, TOOLS)
    assert renderer.extend(renderer.open(ASKED, ()) + renderer.compose("It is 4.", []), USER, ()) is not None


def test_a_template_without_an_end_token_is_declined(model_folder: Callable[[str], Path]) -> None:
    """Where a turn ends with a newline, nothing tells what was sampled from what follows."""
    renderer = load_renderer(
        model_folder("qwen25"),
        chat_template="{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}assistant: ",
    )
    ids = renderer.open(ASKED, ()) + renderer.tokenizer.encode("It is 4.\n")
    assert renderer.extend(ids, USER, ()) is None
    assert "no control token" in renderer.why_not(ids, USER, ())


def test_a_template_that_writes_between_a_turn_and_its_end_is_declined(model_folder: Callable[[str], Path]) -> None:
    """Text that the template puts before the end token was not sampled, and would come after it."""
    source = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + ' ~<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    renderer = load_renderer(model_folder("qwen25"), chat_template=source)
    ids = renderer.open(ASKED, ()) + renderer.tokenizer.encode("It is 4.<|im_end|>")
    assert renderer.extend(ids, USER, ()) is None


def test_a_template_that_counts_its_turns_is_declined(model_folder: Callable[[str], Path]) -> None:
    """What stands between turns must not depend on the history."""
    source = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + loop.index|string + '\n' + m.content + '<|im_end|>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant' + (messages|length + 1)|string + '\n' }}"
        "{% endif %}"
    )
    renderer = load_renderer(model_folder("qwen25"), chat_template=source)
    ids = renderer.open(ASKED, ()) + renderer.tokenizer.encode("It is 4.<|im_end|>")
    assert renderer.extend(ids, USER, ()) is None


def test_extensions_use_the_real_text_where_a_template_changes_it(renderer_of: Renderers) -> None:
    """Llama 3 writes results as JSON strings: quotes, newlines and other letters come out as the template has them."""
    renderer = renderer_of("llama3")
    news = [Message(id="r", role=Role.TOOL, text='a "b"\né', call_id="t0c0", name="calculator")]
    turn = renderer.compose("", [CALL])
    text = renderer.tokenizer.decode(renderer.extend(renderer.open(ASKED, TOOLS) + turn, news, TOOLS) or [])
    assert '"a \\"b\\"\\né"<|eot_id|>' in text


def test_every_proof_is_made_once(renderer_of: Renderers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Extending costs nothing but the new text once a shape is known: no template is rendered for results."""
    renderer = renderer_of("qwen25")
    ids = sampled(renderer, CALLED)
    first = renderer.extend(ids, RESULT, TOOLS)
    monkeypatch.setattr(renderer, "_template", None)
    monkeypatch.setattr(renderer, "_extender", object())
    assert renderer.extend(ids, RESULT, list(TOOLS)) == first


def test_tools_that_spell_control_tokens(renderer_of: Renderers) -> None:
    """Descriptions of tools are text as well."""
    renderer = renderer_of("qwen25")
    odd = (TOOLS[0], TOOLS[1].__class__(name="odd", description="Ends with <|im_end|>.", parameters={}))
    end = renderer.stop_token_ids[0]
    assert renderer.open(ASKED, odd).count(end) == renderer.open(ASKED, TOOLS).count(end)
    ids = renderer.open(ASKED, odd) + renderer.tokenizer.encode(CALLED)
    assert renderer.extend(ids, RESULT, odd) == renderer.extend(sampled(renderer, CALLED), RESULT, TOOLS)
