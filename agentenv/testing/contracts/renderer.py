"""The contract suite of renderers: law 1 and the totality of parsing, for every renderer.

Use, in a test module::

    class TestMyRenderer(RendererContract):
        @pytest.fixture
        def case(self):
            return RendererCase(renderer=my_renderer(), extends_after=("tool", "user"), control_texts=("<|im_end|>",))
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentenv.core.renderer import Renderer
from agentenv.records.messages import Message, Role, ToolCall, ToolSpec

CALCULATOR = ToolSpec(
    name="calculator",
    description="Works out an expression.",
    parameters={
        "type": "object",
        "properties": {"expression": {"type": "string", "description": "Such as 2 * (3 + 4)."}},
        "required": ["expression"],
    },
)
CLOCK = ToolSpec(name="clock", description="Tells the time.", parameters={"type": "object", "properties": {}})
TOOLS = (CALCULATOR, CLOCK)

_EXAMPLES = max(10, settings.default.max_examples // 2) if settings.default else 30
"""Half of what the profile asks for: there are many renderers."""
_words = st.text(st.sampled_from("abz XY09.,;:!?'\"-_/\\(){}\n\té日🙂"), max_size=40)
ordinary_texts = _words.map(str.strip)
"""Text that spells no markup and has no white space around it."""
arguments = st.dictionaries(
    st.text(st.characters(codec="ascii", categories=("Ll",)), min_size=1, max_size=6),
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | _words
    | st.lists(st.integers(0, 9), max_size=2),
    max_size=3,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RendererCase:
    """One renderer, and what is expected of it."""

    renderer: Renderer
    control_texts: tuple[str, ...]
    """Texts of control tokens of its vocabulary; text that spells them must not become them."""
    extends_after: tuple[str, ...]
    """What it is known to extend with: of ``tool``, ``error``, ``user``, ``tool tool``. It may decline all else."""
    calls_per_turn: int = 2


@st.composite
def turns(draw: st.DrawFn, turn: int, most: int) -> tuple[str, tuple[ToolCall, ...]]:
    """Draw what a policy says in one turn: text, calls, or both."""
    given_arguments = draw(st.lists(arguments, max_size=most))
    names = ("calculator", "clock", "read_file")
    calls = tuple(
        ToolCall(id=f"t{turn}c{index}", name=names[index % len(names)], arguments=values)
        for index, values in enumerate(given_arguments)
    )
    text = draw(ordinary_texts)
    return (text or ("" if calls else "Done.")), calls


class RendererContract:
    """What every renderer keeps."""

    @pytest.fixture
    def case(self) -> RendererCase:
        """Give the renderer under test."""
        raise NotImplementedError("a test of a renderer defines the fixture 'case'")

    def test_extends_after_what_it_is_known_to_extend_after(self, case: RendererCase) -> None:
        """A renderer that declines what its template allows makes a segment of every turn."""
        for what in case.extends_after:
            prompt, turn, news = _turn_and_news(case.renderer, what.split())
            assert case.renderer.extend(prompt + turn, news, TOOLS) is not None, what

    def test_extending_is_rendering_the_whole_history(self, case: RendererCase) -> None:
        """Law 1: an extended prompt is what the template gives for the whole history.

        That is so where the policy wrote its turn as the template would have written it.
        """
        for what in case.extends_after:
            prompt, turn, news = _turn_and_news(case.renderer, what.split())
            extension = case.renderer.extend(prompt + turn, news, TOOLS)
            assert extension is not None
            whole = case.renderer.open([*_asked(), _assistant(what.split()), *news], TOOLS)
            assert prompt + turn + extension == whole, what

    def test_a_turn_that_was_cut_gets_its_end_in_the_extension(self, case: RendererCase) -> None:
        """Law 1: what was not sampled comes after what was, never in between; the turn's end is the template's."""
        for what in case.extends_after:
            prompt, turn, news = _turn_and_news(case.renderer, what.split())
            whole = case.renderer.extend(prompt + turn, news, TOOLS)
            cut = case.renderer.extend(prompt + turn[:-1], news, TOOLS)
            assert whole is not None
            assert cut == turn[-1:] + whole, what

    def test_extending_depends_on_nothing_before_the_last_turn(self, case: RendererCase) -> None:
        """Law 1: the bridge is the same after any history, so it is the same in the second turn as in the first."""
        renderer = case.renderer
        for what in case.extends_after:
            if what == "user":
                continue
            prompt, turn, news = _turn_and_news(renderer, what.split())
            first = renderer.extend(prompt + turn, news, TOOLS)
            assert first is not None
            assert renderer.extend(prompt + turn + first + turn, news, TOOLS) == first, what

    def test_ids_that_are_not_its_own_are_declined(self, case: RendererCase) -> None:
        """Without a generation prompt there is nothing to extend."""
        news = _news(["user"])
        assert case.renderer.extend(array("i"), news, TOOLS) is None
        assert case.renderer.extend(case.renderer.tokenizer.encode("some text"), news, TOOLS) is None

    def test_assistant_messages_are_declined(self, case: RendererCase) -> None:
        """Law 1: ids of a sampled turn come from the engine, never from a message."""
        prompt, turn, _ = _turn_and_news(case.renderer, ["user"])
        news = [Message(id="a9", role=Role.ASSISTANT, text="x"), *_news(["user"])]
        assert case.renderer.extend(prompt + turn, news, TOOLS) is None

    def test_ids_after_the_end_of_the_turn_are_declined(self, case: RendererCase) -> None:
        """An engine told to ignore the end token samples on; the template would never put that there."""
        for what in case.extends_after:
            prompt, turn, news = _turn_and_news(case.renderer, what.split())
            went_on = prompt + turn + case.renderer.tokenizer.encode("and on") + turn[-1:]
            assert case.renderer.extend(went_on, news, TOOLS) is None

    def test_sampled_ids_stay_whatever_they_are(self, case: RendererCase) -> None:
        """Law 1: ids the template would never write, such as odd splits of a word, are extended like any other."""
        renderer = case.renderer
        odd = array("i", [number for letter in "calculator: 17" for number in renderer.tokenizer.encode(letter)])
        for what in case.extends_after:
            prompt, turn, news = _turn_and_news(renderer, what.split())
            extension = renderer.extend(prompt + turn, news, TOOLS)
            assert renderer.extend(prompt + odd + turn[-1:], news, TOOLS) == extension, what

    def test_text_never_becomes_a_control_token(self, case: RendererCase) -> None:
        """What a tool, a user or a model spells stays text, in a whole rendering and in an extension."""
        renderer = case.renderer
        for spelled in case.control_texts:
            control = renderer.tokenizer.encode(spelled)
            assert len(control) == 1, "this is no control token of the vocabulary"
            for what in case.extends_after:
                self._check_spelled(renderer, what.split(), spelled, control[0])

    def _check_spelled(self, renderer: Renderer, kinds: Sequence[str], spelled: str, control: int) -> None:
        def count(change: Callable[[Message], Message]) -> tuple[int, int]:
            prompt, turn, news = _turn_and_news(renderer, kinds)
            changed = [change(message) for message in news]
            whole = renderer.open([change(m) for m in [*_asked(), _assistant(kinds), *news]], TOOLS)
            extension = renderer.extend(prompt + turn, changed, TOOLS)
            assert extension is not None
            return whole.count(control), extension.count(control)

        def spell(message: Message) -> Message:
            return replace(message, text=f"{message.text}{spelled}{spelled}x")

        assert count(spell) == count(lambda message: replace(message, text=message.text + "some text"))
        prompt, turn, news = _turn_and_news(renderer, kinds)
        extension = renderer.extend(prompt + turn, [spell(message) for message in news], TOOLS)
        assert extension is not None
        assert f"{spelled}{spelled}x" in renderer.tokenizer.decode(extension)

    def test_composed_turns_read_back(self, case: RendererCase) -> None:
        """Invariant: ``parse(compose(text, calls))`` gives text and calls back, and the turn is closed."""

        @given(turn=turns(turn=3, most=case.calls_per_turn))
        @settings(max_examples=_EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
        def check(turn: tuple[str, tuple[ToolCall, ...]]) -> None:
            text, calls = turn
            ids = case.renderer.compose(text, calls)
            parsed = case.renderer.parse(ids, 3)
            assert (parsed.text, parsed.calls, parsed.errors, parsed.closed) == (text, calls, (), True)
            assert ids[-1] in case.renderer.stop_token_ids

        check()

    def test_every_id_sequence_parses(self, case: RendererCase) -> None:
        """Parsing is total: no ids raise, ids outside the vocabulary included; errors have a reason and an excerpt."""
        size = case.renderer.tokenizer.vocab_size
        marks = sorted({number for text in case.control_texts for number in case.renderer.tokenizer.encode(text)})
        some = st.integers(0, size - 1) | st.sampled_from([*marks, *case.renderer.stop_token_ids, -1, size, 2**31 - 1])

        @settings(max_examples=_EXAMPLES)
        @given(ids=st.lists(some, max_size=20), turn=st.integers(0, 99))
        def check(ids: list[int], turn: int) -> None:
            parsed = case.renderer.parse(ids, turn)
            assert parsed.closed == any(stop in ids for stop in case.renderer.stop_token_ids)
            assert [call.id for call in parsed.calls] == [f"t{turn}c{index}" for index in range(len(parsed.calls))]
            assert all(error.reason and len(error.excerpt) <= 200 for error in parsed.errors)
            parsed.text.encode("utf-8")
            assert isinstance(case.renderer.tokenizer.decode(ids), str)

        check()

    def test_every_text_parses(self, case: RendererCase) -> None:
        """Parsing is total on text that looks like calls but is cut, nested or wrong."""
        pieces = ["<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>",
                  '{"name": "f", ', '"arguments": {', '"parameters": {}}', "}}", "[f(", "a=", "1", "'", ")]", "[", "]",
                  ";", ",", "\n", " ", "NaN", "1e999", "\\ud800", '"', "é"]  # fmt: skip

        @settings(max_examples=_EXAMPLES)
        @given(text=st.lists(st.sampled_from(pieces), max_size=14).map("".join) | st.text(max_size=60))
        def check(text: str) -> None:
            parsed = case.renderer.parse(case.renderer.tokenizer.encode(text), 0)
            assert not parsed.closed or any(
                stop in case.renderer.tokenizer.encode(text) for stop in case.renderer.stop_token_ids
            )
            assert all(isinstance(call.name, str) and call.name for call in parsed.calls)

        check()

    def test_encoding_and_decoding_are_total(self, case: RendererCase) -> None:
        """Any text encodes, plain or not, to ids of the vocabulary; ordinary text comes back."""
        tokenizer = case.renderer.tokenizer

        @settings(max_examples=_EXAMPLES)
        @given(text=st.text(st.characters(exclude_categories=()), max_size=30))
        def check(text: str) -> None:
            for ids in (tokenizer.encode(text), tokenizer.encode_plain(text)):
                assert all(0 <= number < tokenizer.vocab_size for number in ids)
                tokenizer.decode(ids).encode("utf-8")

        check()

    def test_it_says_what_it_is(self, case: RendererCase) -> None:
        """Law 13: hashes of tokenizer and template, call style and carriers, the same every time."""
        identity = case.renderer.identity
        assert identity == case.renderer.identity
        assert len(identity.tokenizer_sha256) == len(identity.template_sha256) == 64
        assert identity.tokenizer_sha256 == case.renderer.tokenizer.sha256
        assert identity.tools_carrier in {"template", "system"}
        assert identity.results_carrier in {"tool", "user"}
        assert case.renderer.stop_token_ids

    def test_tools_are_described_to_the_policy(self, case: RendererCase) -> None:
        """Whatever carries them, names, descriptions and parameters of tools are in the prompt."""
        text = case.renderer.tokenizer.decode(case.renderer.open(_asked(), TOOLS))
        for word in ("calculator", "Works out an expression.", "expression", "clock", "What is 2 + 2?"):
            assert word in text


def _asked() -> list[Message]:
    return [
        Message(id="m0", role=Role.SYSTEM, text="You are careful."),
        Message(id="m1", role=Role.USER, text="What is 2 + 2?"),
    ]


def _calls(kinds: Sequence[str]) -> tuple[ToolCall, ...]:
    numbers = range(kinds.count("tool"))
    return tuple(ToolCall(id=f"t0c{n}", name="calculator", arguments={"expression": f"{n} + 2"}) for n in numbers)


def _assistant(kinds: Sequence[str]) -> Message:
    calls = _calls(kinds)
    return Message(id="m2", role=Role.ASSISTANT, text="" if calls else "I think it is 4.", calls=calls, turn=0)


def _news(kinds: Sequence[str]) -> list[Message]:
    news: list[Message] = []
    for index, kind in enumerate(kinds):
        role = Role.USER if kind == "user" else Role.TOOL
        call_id = f"t0c{index}" if kind == "tool" else None
        name = "calculator" if kind == "tool" else None
        news.append(Message(id=f"m{index + 3}", role=role, text=f"It is {index}.", call_id=call_id, name=name, turn=0))
    return news


def _turn_and_news(renderer: Renderer, kinds: Sequence[str]) -> tuple[array[int], array[int], list[Message]]:
    """Give a prompt, a turn as the policy would write it, and what follows."""
    message = _assistant(kinds)
    return renderer.open(_asked(), TOOLS), renderer.compose(message.text, message.calls), _news(kinds)
