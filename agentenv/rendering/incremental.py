"""Extends a prompt without touching what is there, where the template is shown to allow it.

The claim to be proved (law 1). Let ``R(history)`` be the template's text with the generation prompt, ``A`` the sampled
turn and ``N`` the messages after it. Extending is right if ``R(history + A + N) = R(history) + a + bridge(N)``, where
``a`` stands for the sampled text and the bridge depends neither on the history nor on what was sampled.

A template is a program, so this is tested rather than deduced, once for each *shape*: the kinds of ``N``, whether
reasoning was sampled, and the tools. Histories of several forms are rendered with words that occur nowhere else,
before and after; the first must be a prefix of the second, the turn must follow at once, and the bridge must be the
same text every time, beginning with the turn's end token. A shape that fails in one of them is declined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from agentenv.records.messages import Message, Role, ToolCall
from agentenv.rendering.calls.reasoning import CLOSE, OPEN
from agentenv.rendering.carriers import ChatBuilder
from agentenv.rendering.chat_template import ChatMessage, ChatTemplate, TemplateRefusal
from agentenv.rendering.control_text import ControlText, Escaper

_TRICKY_TEXTS = (
    "", " ", "  padded  ", "\n\nlines\n\n", "0", "none", "None", '{"a": [1, "b"]}', "[1, 2]", "'\"\\<>&",
    "{{ x }} {% y %} {# z #}", "<tool_response>\nx\n</tool_response>", "<think>\nx\n</think>\n\ny",
    "é\u2028\u00a0\U0001f600", "<|im_end|>\n<|im_start|>user", "Error: no", "https://example.org/?a=b", "x" * 5000,
)  # fmt: skip
"""Texts that a template might not copy as they are: trimmed, quoted, tested, or taken for something else."""
_THOUGHT, _SAID, _ARGUMENT, _TOOL = "qzthoughtqz", "qzsaidqz", "qzgivenqz", "qztoolqz"


Kind = Literal["tool", "error", "user", "system"]
"""What a new message is to the template; ``tool`` answers a call, ``error`` answers none.

Plain strings: they are looked up once per turn, and hashing an enumeration costs more than all else there.
"""


def kind_of(message: Message) -> Kind | None:
    """Classify a new message; None for what cannot be one (an assistant's)."""
    role = message.role
    if role is Role.TOOL:
        return "error" if message.call_id is None else "tool"
    if role is Role.USER:
        return "user"
    return "system" if role is Role.SYSTEM else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was shown for one shape."""

    failure: str | None
    """Why it is declined; None if the claim holds."""
    bare: bool = False
    """Whether the bridge is the same without tools, so that it may be rendered without them."""
    pieces: tuple[str, ...] | None = None
    """The bridge around the texts of the new messages, one piece more than there are messages; None if the template
    does more with them than to copy them, and the bridge has to be rendered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """A made-up assistant turn, and the words by which it is found again."""

    chat: ChatMessage
    begins: str
    """What must follow the generation prompt at once, without white space; empty if that is the template's choice."""
    last_word: str
    """The last word of it that the turn's end must come after."""
    exact: bool
    """Whether the end token must follow ``last_word`` at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A made-up history and the turn sampled after it."""

    history: list[ChatMessage]
    turn: _Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """What stays the same over the cases of one proof."""

    news: Sequence[Message]
    tools: Sequence[ChatMessage]
    tools_text: str | None


class Extender:
    """Proves shapes and renders bridges for one template."""

    def __init__(
        self,
        *,
        template: ChatTemplate,
        builder: ChatBuilder,
        control: ControlText,
        turn_end: str,
        opens_reasoning: bool,
    ) -> None:
        self._template = template
        self._builder = builder
        self._control = control
        self._turn_end = turn_end
        self._opens_reasoning = opens_reasoning

    def prove(
        self, kinds: Sequence[Kind], *, reasoning: bool, tools: Sequence[ChatMessage], tools_text: str | None
    ) -> Proof:
        """Test the claim for one shape.

        Args:
            kinds: What follows the turn.
            reasoning: Whether turns with reasoning are among those tested; turns without it always are.
            tools: As the template sees them.
            tools_text: Tool descriptions for the system text, where the template shows none.
        """
        news = _made_up(kinds)
        setting = _Setting(news=news, tools=tools, tools_text=tools_text)
        try:
            found = [self._bridge_of(case, setting) for case in self._cases(kinds, reasoning=reasoning)]
            bridges = {bridge for bridge in found if bridge is not None}
            if len(bridges) != 1:
                return Proof(failure="what the template writes after a turn depends on what came before it")
            bridge = bridges.pop()
            if not all(message.text in bridge for message in news):
                return Proof(failure="the template leaves a new message out")
            bare = self.bridge(news, tools=(), escaper=self._control.escaper()) == bridge
            return Proof(failure=None, bare=bare, pieces=self._pieces(bridge, kinds) if bare else None)
        except (_NotShown, TemplateRefusal) as error:
            return Proof(failure=str(error))

    def bridge(self, news: Sequence[Message], *, tools: Sequence[ChatMessage], escaper: Escaper) -> str:
        """Render the bridge for actual messages, from a history as short as can be.

        Raises:
            TemplateRefusal: The template does not take these messages.
        """
        results = [message for message in news if message.call_id is not None]
        turn = self._turn(results, escaper=escaper, reasoning=False, text="" if results else _SAID)
        chat = [*self._chat([_user("qzaskqz")], escaper), turn.chat, *self._chat(news, escaper)]
        whole = self._template.render(chat, tools, generation_prompt=True)
        return whole[self._end_of(whole, turn, 0) :]

    def _pieces(self, bridge: str, kinds: Sequence[Kind]) -> tuple[str, ...] | None:
        """Cut the bridge around the new texts, if any text whatever would be copied there as it is.

        Only for results: what a template does with a user's text is the likeliest to depend on it.
        """
        if not {*kinds} <= {"tool", "error"}:
            return None
        rest, pieces = bridge, list[str]()
        for message in _made_up(kinds):
            piece, _, rest = rest.partition(message.text)
            pieces.append(piece)
        pieces.append(rest)
        for shift in range(len(_TRICKY_TEXTS)):
            news = [
                replace(message, text=_TRICKY_TEXTS[(shift + index) % len(_TRICKY_TEXTS)], name=f"qz{index}nameqz")
                for index, message in enumerate(_made_up(kinds))
            ]
            news = [replace(message, call_id=message.call_id and f"t9c{index}") for index, message in enumerate(news)]
            escaper = self._control.escaper()
            written = escaper.restore(self.bridge(news, tools=(), escaper=escaper))
            if written != spliced(pieces, [message.text for message in news]):
                return None
        return tuple(pieces)

    def _bridge_of(self, case: _Case, setting: _Setting) -> str | None:
        """Give the bridge in one case, having checked everything else that the claim says of it.

        None if the template does not take the case's history in the first place.
        """
        history = self._builder.with_front(case.history, setting.tools_text)
        after = [*history, case.turn.chat, *self._chat(setting.news, self._control.escaper())]
        try:
            before = self._template.render(history, setting.tools, generation_prompt=True)
        except TemplateRefusal:
            return None
        whole = self._template.render(after, setting.tools, generation_prompt=True)
        if not whole.startswith(before):
            raise _NotShown("the template rewrites earlier turns when these messages follow")
        rest = "".join(whole[len(before) :].split())
        if not rest.startswith(case.turn.begins):
            raise _NotShown("the template puts something else in front of a finished turn, or drops part of it")
        return whole[self._end_of(whole, case.turn, len(before)) :]

    def _end_of(self, whole: str, turn: _Turn, start: int) -> int:
        """Find where the end token of ``turn`` begins."""
        word = whole.find(turn.last_word, start)
        if word < 0:
            raise _NotShown("the template leaves out what was sampled")
        end = word + len(turn.last_word)
        found = whole.find(self._turn_end, end)
        if found < 0 or (turn.exact and found != end):
            raise _NotShown("the template does not end a turn with its end token at once")
        return found

    def _cases(self, kinds: Sequence[Kind], *, reasoning: bool) -> list[_Case]:
        """Make histories up, each with the turn that is sampled after it."""
        results = [message for message in _made_up(kinds) if message.call_id is not None]
        texts = ("", _SAID) if results else (_SAID,)
        thinking = ((False, False), (True, True), (True, False), (False, True)) if reasoning else ((False, False),)
        cases: list[_Case] = []
        if self._opens_reasoning:
            thinking = ((True, True), (False, True))  # every reply begins inside reasoning
        for (earlier, last), text in product(thinking, texts):
            turn = self._turn(results, escaper=self._control.escaper(), reasoning=last, text=text)
            cases.extend(_Case(history=history, turn=turn) for history in self._histories(reasoning=earlier))
        return cases

    def _histories(self, *, reasoning: bool) -> list[list[ChatMessage]]:
        escaper = self._control.escaper()
        earlier = Message(id="r", role=Role.TOOL, text="qzearlierqz", call_id="t7c0", name=_TOOL)
        called = [self._turn([earlier], escaper=escaper, reasoning=reasoning, text="").chat]
        called += self._chat([earlier], escaper)
        said = [self._turn([], escaper=escaper, reasoning=reasoning, text="qzansweredqz").chat]
        ask, further = self._chat([_user("qzaskqz")], escaper), self._chat([_user("qzfurtherqz")], escaper)
        return [
            ask,
            [*ask, *called],
            [*ask, *said, *further],
            [*ask, *called, *said, *further],
            [*ask, *said, *further, *called],
        ]

    def _chat(self, messages: Sequence[Message], escaper: Escaper) -> list[ChatMessage]:
        return self._builder.chat(messages, tools_text=None, escaper=escaper)

    def _turn(self, results: Sequence[Message], *, escaper: Escaper, reasoning: bool, text: str) -> _Turn:
        """Make a turn up that calls what ``results`` answer."""
        calls = tuple(
            ToolCall(id=str(message.call_id), name=message.name or _TOOL, arguments={"qzkeyqz": f"{_ARGUMENT}{index}"})
            for index, message in enumerate(results)
        )
        thought = f"{OPEN}\n{_THOUGHT}\n{CLOSE}\n\n" if reasoning else ""
        begins = text if text and not calls else ""
        if reasoning:
            begins = ("" if self._opens_reasoning else OPEN) + _THOUGHT + CLOSE + begins
        return _Turn(
            chat=self._builder.assistant(thought + text, calls, escaper, keep_markup=True),
            begins=begins,
            last_word=f"{_ARGUMENT}{len(calls) - 1}" if calls else text,
            exact=not calls,
        )


def spliced(pieces: Sequence[str], texts: Sequence[str]) -> str:
    """Put texts between pieces."""
    return "".join([part for pair in zip(pieces, texts, strict=False) for part in pair] + [pieces[-1]])


class _NotShown(Exception):
    """One case failed; the message says how."""


def _user(text: str) -> Message:
    return Message(id="u", role=Role.USER, text=text)


def _made_up(kinds: Sequence[Kind]) -> list[Message]:
    """Make new messages up, one for each kind, with texts that occur nowhere else."""
    return [
        Message(
            id=f"n{index}",
            role=Role.TOOL if kind == "error" else Role(kind),
            text=f"qznew{index}qz",
            call_id=f"t8c{index}" if kind == "tool" else None,
            name=_TOOL if kind == "tool" else None,
        )
        for index, kind in enumerate(kinds)
    ]
