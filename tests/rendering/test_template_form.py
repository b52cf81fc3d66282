"""What a template can carry is found out by rendering, and what it cannot carry goes another way that is recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from agentenv.errors import ConfigError, UnknownNameError, UsageError
from agentenv.records.messages import Message, Role, ToolCall
from agentenv.rendering.loading import byte_renderer, load_renderer
from agentenv.rendering.template_renderer import TemplateRenderer
from agentenv.testing.contracts.renderer import TOOLS

CALL = ToolCall(id="t0c0", name="calculator", arguments={"expression": "2"})
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.mark.parametrize(
    ("name", "style", "tools", "results"),
    [
        ("qwen25", "hermes", "template", "tool"),
        ("qwen3", "hermes", "template", "tool"),
        ("llama3", "llama3", "template", "tool"),
        ("mistral", "mistral", "template", "tool"),
        ("mistral_named", "mistral", "template", "tool"),
        ("pythonic", "pythonic", "template", "tool"),
        ("gemma", "hermes", "system", "user"),
    ],
)
def test_carriers_and_style_of_each_family(
    name: str, style: str, tools: str, results: str, renderer_of: Callable[[str], TemplateRenderer]
) -> None:
    identity = renderer_of(name).identity
    assert (identity.call_style, identity.tools_carrier, identity.results_carrier) == (style, tools, results)


def test_a_template_that_writes_any_role_has_no_tool_role(model_folder: Callable[[str], Path]) -> None:
    """A role that is written like one nobody knows was never learned: results come from the user."""
    renderer = load_renderer(model_folder("qwen25"), chat_template=CHATML)
    assert (renderer.identity.tools_carrier, renderer.identity.results_carrier) == ("system", "user")
    history = [
        Message(id="m0", role=Role.USER, text="2?"),
        Message(id="m1", role=Role.ASSISTANT, text="Hm.", calls=(CALL, CALL)),
        Message(id="m2", role=Role.TOOL, text="2", call_id="t0c0", name="calculator"),
        Message(id="m3", role=Role.TOOL, text="That is no call."),
    ]
    written = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2"}}\n</tool_call>'
    text = renderer.tokenizer.decode(renderer.open(history, TOOLS))
    assert text.startswith("<|im_start|>system\nYou can call these tools")
    assert text.endswith(
        f"<|im_start|>assistant\nHm.\n{written}\n{written}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n2\n</tool_response>\n<tool_response>\nThat is no call.\n</tool_response>"
        "<|im_end|>\n<|im_start|>assistant\n"
    )


def test_tools_are_described_with_the_form_and_an_example(model_folder: Callable[[str], Path]) -> None:
    """The example is a call that the parser reads."""
    renderer = load_renderer(model_folder("qwen25"), chat_template=CHATML)
    history = [Message(id="m0", role=Role.SYSTEM, text="Be brief."), Message(id="m1", role=Role.USER, text="2?")]
    text = renderer.tokenizer.decode(renderer.open(history, TOOLS))
    assert "<|im_start|>system\nBe brief.\n\nYou can call these tools" in text
    example = text[text.index("<tool_call>") : text.index("</tool_call>") + len("</tool_call>")]
    parsed = renderer.parse(renderer.tokenizer.encode(example), 0)
    assert [(call.name, call.arguments) for call in parsed.calls] == [("calculator", {"expression": "EXPRESSION"})]


def test_system_text_without_a_system_role_goes_before_the_question(
    renderer_of: Callable[[str], TemplateRenderer],
) -> None:
    renderer = renderer_of("gemma")
    history = [Message(id="m0", role=Role.SYSTEM, text="Be brief."), Message(id="m1", role=Role.USER, text="2?")]
    assert renderer.tokenizer.decode(renderer.open(history, ())) == (
        "<bos><start_of_turn>user\nBe brief.\n\n2?<end_of_turn>\n<start_of_turn>model\n"
    )


def test_calls_that_a_template_cannot_write_are_written_as_text(
    renderer_of: Callable[[str], TemplateRenderer],
) -> None:
    """Llama 3's template takes one call and drops text beside it; nothing of a turn is lost all the same."""
    renderer = renderer_of("llama3")
    history = [
        Message(id="m0", role=Role.USER, text="2?"),
        Message(id="m1", role=Role.ASSISTANT, text="Hm.", calls=(CALL, CALL)),
        Message(id="m2", role=Role.TOOL, text="2", call_id="t0c0", name="calculator"),
    ]
    text = renderer.tokenizer.decode(renderer.open(history, TOOLS))
    call = '{"name": "calculator", "parameters": {"expression": "2"}}'
    assert f"<|end_header_id|>\n\nHm.\n{call}\n{call}<|eot_id|>" in text


def test_mistral_call_ids_have_nine_characters(renderer_of: Callable[[str], TemplateRenderer]) -> None:
    renderer = renderer_of("mistral")
    call = ToolCall(id="t12c3", name="calculator", arguments={})
    text = renderer.tokenizer.decode(renderer.compose("", [call]))
    assert '"id": "t00012c03"' in text
    foreign = ToolCall(id="call_abc-123456", name="calculator", arguments={})
    assert '"id": "abc123456"' in renderer.tokenizer.decode(renderer.compose("", [foreign]))


_UNREADABLE = CHATML.replace(
    "+ m['content'] +", "+ m['content'] + (('<call:' + m.tool_calls[0].function.name + '|' + "
    "m.tool_calls[0].function.arguments|string + '>') if m.tool_calls else '') +"
)  # fmt: skip


def test_calls_in_an_unknown_form_are_a_config_error(model_folder: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError, match=r"a form that no call style reads: .<call:.*Give call_style, one of hermes"):
        load_renderer(model_folder("qwen25"), chat_template=_UNREADABLE)


def test_a_given_style_replaces_a_form_that_nobody_reads(model_folder: Callable[[str], Path]) -> None:
    renderer = load_renderer(model_folder("qwen25"), chat_template=_UNREADABLE, call_style="pythonic")
    assert (renderer.identity.call_style, renderer.identity.tools_carrier) == ("pythonic", "system")
    text = renderer.tokenizer.decode(renderer.open([Message(id="m", role=Role.USER, text="2?")], TOOLS))
    assert '[calculator(expression="EXPRESSION")]' in text
    assert renderer.parse(renderer.compose("Hm.", [CALL]), 0).calls == (CALL,)


def test_an_unknown_style_is_named(model_folder: Callable[[str], Path]) -> None:
    with pytest.raises(UnknownNameError, match=r"no call style 'herms'. Did you mean 'hermes'"):
        load_renderer(model_folder("qwen25"), call_style="herms")


def test_a_template_that_takes_no_chat_is_a_config_error(model_folder: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError, match="does not render a single user message"):
        load_renderer(model_folder("qwen25"), chat_template="{{ raise_exception('no') }}")


def test_a_history_that_the_template_refuses_is_quoted(renderer_of: Callable[[str], TemplateRenderer]) -> None:
    history = [Message(id="m", role=Role.ASSISTANT, text="I begin.")]
    with pytest.raises(ConfigError, match=r"refuses this history: TemplateError: .*must alternate.*\(roles: assistant"):
        renderer_of("mistral").open(history, ())


@pytest.mark.parametrize("text", [" padded", '<tool_call>\n{"name": "x"}\n</tool_call>', "<think>so</think>x"])
def test_turns_that_do_not_read_back_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be written so that it reads back"):
        byte_renderer().compose(text, [])


def test_a_template_for_tools_is_used_where_there_are_tools(model_folder: Callable[[str], Path]) -> None:
    """The identity covers both templates."""
    plain = load_renderer(model_folder("qwen25"), chat_template=CHATML).identity
    assert plain.template_sha256 != load_renderer(model_folder("qwen25")).identity.template_sha256
    argued = load_renderer(model_folder("qwen25"), chat_template=CHATML, template_arguments={"x": 1}).identity
    assert plain.template_sha256 != argued.template_sha256
    assert plain.tokenizer_sha256 == argued.tokenizer_sha256
