"""Each call style reads what models write, says what is wrong with the rest, and never raises."""

from __future__ import annotations

from typing import Any

import pytest
from agentenv.rendering.calls.hermes import Hermes
from agentenv.rendering.calls.json_text import MAX_DEPTH
from agentenv.rendering.calls.llama3 import Llama3
from agentenv.rendering.calls.mistral import Mistral
from agentenv.rendering.calls.pythonic import Pythonic
from agentenv.rendering.calls.reasoning import split_reasoning
from agentenv.rendering.calls.style import CallStyle, WrittenCall
from agentenv.testing.contracts.renderer import arguments, ordinary_texts
from hypothesis import given
from hypothesis import strategies as st

STYLES: dict[str, CallStyle] = {
    "hermes": Hermes(), "llama3": Llama3(), "mistral": Mistral(), "mistral_named": Mistral(named=True),
    "pythonic": Pythonic(),
}  # fmt: skip
ADD = ("add", {"a": 1, "b": 2})
JSON = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
PARAMETERS = '{"name": "add", "parameters": {"a": 1, "b": 2}}'
NEXT = ("clock", {})


@pytest.mark.parametrize(
    ("style", "text", "said", "calls"),
    [
        ("hermes", f"<tool_call>\n{JSON}\n</tool_call>", "", [ADD]),
        ("hermes", f"Let me add.\n<tool_call>{JSON}</tool_call>", "Let me add.", [ADD]),
        ("hermes", f'<tool_call>{JSON}</tool_call> <tool_call>{{"name": "clock"}}</tool_call> So.', "So.", [ADD, NEXT]),
        ("hermes", f"<tool_call>\n{JSON}", "", [ADD]),
        ("hermes", f"<tool_call>{JSON}<tool_call>{JSON}</tool_call>", "", [ADD, ADD]),
        ("hermes", '<tool_call>{"name": "say", "arguments": {"x": "</tool_call>"}}</tool_call>', "",
         [("say", {"x": "</tool_call>"})]),
        ("hermes", '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1, \\"b\\": 2}"}</tool_call>', "", [ADD]),
        ("hermes", '<tool_call>{"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}</tool_call>', "", [ADD]),
        ("hermes", '<tool_call>{"name": " clock ", "arguments": null}</tool_call>', "", [NEXT]),
        ("hermes", "No call at all.", "No call at all.", []),
        ("hermes", '{"a": 1}', '{"a": 1}', []),
        ("llama3", PARAMETERS, "", [ADD]),
        ("llama3", f"<|python_tag|>{PARAMETERS}", "", [ADD]),
        ("llama3", f"{PARAMETERS}; {PARAMETERS}", "", [ADD, ADD]),
        ("llama3", f"{JSON}\n{PARAMETERS}\nDone.", "Done.", [ADD, ADD]),
        ("llama3", f"I add:\n{PARAMETERS}", "I add:", [ADD]),
        ("llama3", '{"type": "function", "name": "clock", "parameters": {}}', "", [NEXT]),
        ("llama3", 'An object is {"a": 1}.', 'An object is {"a": 1}.', []),
        ("mistral", f"[TOOL_CALLS] [{JSON}]", "", [ADD]),
        ("mistral", f'I add.[TOOL_CALLS][{JSON}, {{"name": "clock", "arguments": {{}}, "id": "abcdefghi"}}]', "I add.",
         [ADD, NEXT]),
        ("mistral", '[TOOL_CALLS]add[ARGS]{"a": 1, "b": 2}', "", [ADD]),
        ("mistral", 'So[TOOL_CALLS]add[CALL_ID]abc[ARGS]{"a": 1, "b": 2}[TOOL_CALLS]clock[ARGS]{}', "So", [ADD, NEXT]),
        ("mistral", f"[TOOL_CALLS]{JSON}", "", [ADD]),
        ("mistral", "A list: [1]", "A list: [1]", []),
        ("pythonic", "[add(a=1, b=2)]", "", [ADD]),
        ("pythonic", "I add.\n[add(a=1, b=2), clock()]", "I add.", [ADD, NEXT]),
        ("pythonic", "<|python_start|>[ add( a = 1,\n b=2, ), ]<|python_end|>", "", [ADD]),
        ("pythonic", "[files.read(path='a\\'b\\n', lines=[1, -2.5, (True, None)], more={'k': {\"x\": false}})]", "",
         [("files.read", {"path": "a'b\n", "lines": [1, -2.5, [True, None]], "more": {"k": {"x": False}}})]),
        ("pythonic", r'[re(pattern="\d+\u00e9\x41\/")]', "", [("re", {"pattern": r"\d+éA/"})]),
        ("pythonic", "See [note(1)] and [1].", "See [note(1)] and [1].", []),
    ],
)  # fmt: skip
def test_what_models_write_is_read(style: str, text: str, said: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    found = STYLES[style].parse(text)
    assert not found.errors
    assert (found.text, [(call.name, call.arguments) for call in found.calls]) == (said, calls)


@pytest.mark.parametrize(
    ("style", "text", "reason"),
    [
        ("hermes", '<tool_call>\n{"name": "add", "argu', "no valid JSON (Unterminated string"),
        ("hermes", "<tool_call>add(1, 2)</tool_call>", "no valid JSON (Expecting value at character 0)"),
        ("hermes", "<tool_call></tool_call>", "no valid JSON"),
        ("hermes", "<tool_call>[1]</tool_call>", "a call is a JSON object"),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>', 'no "name" that is a non-empty string'),
        ("hermes", '<tool_call>{"name": "add", "arguments": [1]}</tool_call>', '"arguments" is not a JSON object'),
        ("hermes", '<tool_call>{"name": "add", "arguments": "x"}</tool_call>', '"arguments" is not a JSON object'),
        ("hermes", f"<tool_call>{JSON} and so on</tool_call>", "text after the JSON object"),
        ("hermes", f"{JSON}</tool_call>", "</tool_call> without <tool_call>"),
        ("hermes", JSON, "stands between <tool_call> and </tool_call>"),
        ("hermes", '<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>', "NaN is not JSON"),
        ("hermes", '<tool_call>{"name": "a", "arguments": {"x": 1e999}}</tool_call>', "1e999 is too large"),
        ("hermes", '<tool_call>{"name": "a", "arguments": {"x": ' + "9" * 5000 + "}}</tool_call>", "no valid JSON"),
        ("hermes", "<tool_call>" + "[" * 100_000 + "</tool_call>", "nested too deeply"),
        ("hermes", "<tool_call>" + "[" * 100 + "]" * 100 + "</tool_call>", f"more than {MAX_DEPTH} levels"),
        ("llama3", '{"name": "add", "parameters": {"a": 1', "no valid JSON"),
        ("llama3", "<|python_tag|>print(1)", "no valid JSON"),
        ("llama3", '{"name": 3, "parameters": {}}', 'no "name"'),
        ("llama3", f'{PARAMETERS}; {{"name": "add", "para', "no valid JSON"),
        ("mistral", "[TOOL_CALLS]", "no valid JSON"),
        ("mistral", "[TOOL_CALLS] [{]", "no valid JSON"),
        ("mistral", "[TOOL_CALLS] []", "the list is empty"),
        ("mistral", "[TOOL_CALLS] [1]", "a call is a JSON object"),
        ("mistral", "[TOOL_CALLS]add[ARGS][1]", '"arguments" is not a JSON object'),
        ("pythonic", "[add(1, 2)]", "expected a name at character 5, found '1, 2)]'"),
        ("pythonic", "[add(a=b)]", "expected a literal"),
        ("pythonic", "[add(a=1)] and so on", "expected nothing more"),
        ("pythonic", "[add(a=1", "expected ')'"),
        ("pythonic", "[add(a='x", "a string that is closed"),
        ("pythonic", "[add(a=1) add(a=2)]", "expected ']'"),
        ("pythonic", "[add(a={1: 2})]", "a key that is a string"),
        ("pythonic", "[add(a={'x' 2})]", "expected ':'"),
        ("pythonic", "[add(a=1e999)]", "a finite number"),
        ("pythonic", "[add(a=" + "9" * 5000 + ")]", "at most 4000 digits"),
        ("pythonic", "[add(a=" + "[" * 100_000 + ")]", f"no more than {MAX_DEPTH} levels"),
        ("pythonic", "[add(a=-)]", "expected a number"),
        ("pythonic", "[add(a=)]", "expected a literal"),
    ],
)
def test_what_is_wrong_is_said_to_the_model(style: str, text: str, reason: str) -> None:
    """One error, with what to write instead, and the text at fault kept as text."""
    found = STYLES[style].parse(text)
    assert [reason in error.reason for error in found.errors] == [True], found.errors
    error = found.errors[0]
    assert "in this form" in error.reason
    assert 0 < len(error.excerpt) <= 200
    assert error.excerpt.rstrip("…").strip()[:20] in found.text


def test_good_calls_beside_a_bad_one_are_read() -> None:
    found = Hermes().parse(f"<tool_call>{JSON}</tool_call>\n<tool_call>oops</tool_call>\n<tool_call>{JSON}</tool_call>")
    assert len(found.calls) == 2
    assert [error.excerpt for error in found.errors] == ["<tool_call>oops</tool_call>"]
    assert found.text == "<tool_call>oops</tool_call>"


def test_lone_surrogates_in_arguments_are_replaced() -> None:
    """They could not be stored: JSON allows the escape, UTF-8 does not have the character."""
    found = Hermes().parse(
        '<tool_call>{"name": "say", "arguments": {"\\ud800": ["\\udfff", "\\ud83d\\ude42"]}}</tool_call>'
    )
    assert found.calls[0].arguments == {"\ufffd": ["\ufffd", "🙂"]}
    assert Pythonic().parse('[say(x="\\ud800")]').calls[0].arguments == {"x": "\ufffd"}


@pytest.mark.parametrize("name", sorted(STYLES))
def test_what_is_written_reads_back(name: str) -> None:
    """Invariant: ``parse(write(text, calls))`` gives both back."""
    style = STYLES[name]
    written = st.builds(WrittenCall, name=st.sampled_from(["add", "files.read", "x_1"]), arguments=arguments)

    @given(text=ordinary_texts, calls=st.lists(written, max_size=3))
    def check(text: str, calls: list[WrittenCall]) -> None:
        if style.parse(text).calls or style.parse(text).errors:
            return
        found = style.parse(style.write(text, calls))
        assert (found.text, list(found.calls), found.errors) == (text, calls, ())

    check()


@pytest.mark.parametrize("name", sorted(STYLES))
@given(text=st.text(st.sampled_from("[](){}<>'\"\\:;,=.|/_ \n\x00aT1-é\ud800") | st.characters(), max_size=60))
def test_any_text_parses(name: str, text: str) -> None:
    """Parsing is total."""
    found = STYLES[name].parse(text)
    assert all(call.name for call in found.calls)
    assert all(error.reason and len(error.excerpt) <= 200 for error in found.errors)


@pytest.mark.parametrize(
    ("text", "opened", "reasoning", "rest"),
    [
        ("<think>\na\n</think>\n\nb", False, "a", "\n\nb"),
        ("  <think></think>b", False, None, "b"),
        ("<think>a", False, "a", ""),
        ("a</think>b", True, "a", "b"),
        ("<think>a</think>b", True, "a", "b"),
        ("a</think>b", False, None, "a</think>b"),
        ("b <think>a</think>", False, None, "b <think>a</think>"),
        ("", True, None, ""),
    ],
)
def test_reasoning_is_split_off(text: str, opened: bool, reasoning: str | None, rest: str) -> None:
    split = split_reasoning(text, opened=opened)
    assert (split.reasoning, split.rest) == (reasoning, rest)


def test_calls_inside_reasoning_are_thoughts() -> None:
    split = split_reasoning(f"<think>maybe <tool_call>{JSON}</tool_call></think>No.", opened=False)
    assert Hermes().parse(split.rest).calls == ()
