"""A renderer for any chat template.

Proofs of extension, texts and hashes are worked out once and kept; nothing else is remembered between calls.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentenv.core.renderer import RendererIdentity
from agentenv.errors import UsageError
from agentenv.records.messages import Message, ParsedTurn, Role, ToolCall, ToolSpec
from agentenv.rendering.calls.reasoning import CLOSE, OPEN, split_reasoning
from agentenv.rendering.calls.style import CallStyle, WrittenCall, bounded
from agentenv.rendering.carriers import ChatBuilder, describe_tools, tool_schema
from agentenv.rendering.chat_template import ChatMessage, ChatTemplate, TemplateRefusal
from agentenv.rendering.control_text import ControlText, ControlTokenizer, Escaper
from agentenv.rendering.incremental import Extender, Kind, Proof, kind_of, spliced
from agentenv.rendering.template_form import TemplateForm, find_form

_MAX_TOOLSETS = 64

_Shape = tuple[tuple[Kind, ...], bool]
"""What follows a turn, and whether there is reasoning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Toolset:
    """One set of tools, as a template sees it."""

    specs: tuple[ToolSpec, ...]
    schemas: tuple[ChatMessage, ...]
    """Empty where the template shows none."""
    text: str | None
    """For the system text; None where the template shows tools, or there are none."""
    clean: bool
    """Whether nothing in it spells a control token."""
    proofs: dict[_Shape, Proof] = field(default_factory=dict[_Shape, Proof])


class TemplateRenderer:
    """Implements `agentenv.core.renderer.Renderer` over a tokenizer and a chat template."""

    def __init__(self, *, tokenizer: ControlTokenizer, template: ChatTemplate, call_style: str | None = None) -> None:
        """Find out by rendering what the template can carry and which call style it writes.

        Raises:
            ConfigError: It is no template for chats, or writes calls in a style that none of ours reads.
            UnknownNameError: There is no such call style.
        """
        self._tokenizer = tokenizer
        self._template = template
        self._control = ControlText(tokenizer.control_ids)
        self._form: TemplateForm = find_form(
            template, control_ids=tokenizer.control_ids, control=self._control.pattern, call_style=call_style
        )
        self._style: CallStyle = self._form.style
        self._builder = ChatBuilder(traits=self._form.traits, style=self._style)
        self._extender = self._make_extender()
        self._openings = [tokenizer.encode(text).tobytes() for text in self._form.openings]
        self._turn_end_id = None if self._form.turn_end is None else tokenizer.control_ids[self._form.turn_end]
        first = () if self._turn_end_id is None else (self._turn_end_id,)
        self._stops = tuple(dict.fromkeys([*first, *tokenizer.eos_ids]))
        self._stop_set = frozenset(self._stops)
        self._dropped = _dropped(tokenizer.control_ids, self._style)
        thoughts = (tokenizer.control_ids.get(tag) for tag in (OPEN, CLOSE))
        self._thought_ids = [None if number is None else array("i", [number]).tobytes() for number in thoughts]
        self._toolsets: deque[_Toolset] = deque(maxlen=_MAX_TOOLSETS)

    @property
    def identity(self) -> RendererIdentity:
        traits = self._form.traits
        return RendererIdentity(
            name="template",
            tokenizer_sha256=self._tokenizer.sha256,
            template_sha256=self._template.sha256,
            call_style=self._style.name,
            tools_carrier="template" if traits.tools else "system",
            results_carrier="tool" if traits.tool_role else "user",
        )

    @property
    def tokenizer(self) -> ControlTokenizer:
        return self._tokenizer

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return self._stops

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> array[int]:
        escaper = self._control.escaper()
        toolset = self._escaped(self._toolset(tools), escaper)
        chat = self._builder.chat(messages, tools_text=toolset.text, escaper=escaper)
        rendered = self._template.render(chat, toolset.schemas, generation_prompt=True)
        return self._control.encode(self._tokenizer, rendered, escaper)

    def extend(
        self, previous_ids: array[int], new_messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> array[int] | None:
        extension = self._extension(previous_ids, new_messages, tools)
        return None if isinstance(extension, str) else extension

    def why_not(self, previous_ids: array[int], new_messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        """Say why `extend` declines; an empty text if it does not. For the reason that a new segment records."""
        extension = self._extension(previous_ids, new_messages, tools)
        return extension if isinstance(extension, str) else ""

    def parse(self, completion_ids: Sequence[int], turn: int) -> ParsedTurn:
        body = list(completion_ids)
        ends = [body.index(stop) for stop in self._stop_set.intersection(body)]
        if ends:
            del body[min(ends) :]
        if not self._dropped.isdisjoint(body):
            body = [number for number in body if number not in self._dropped]
        reply = split_reasoning(self._tokenizer.decode(body), opened=self._form.opens_reasoning)
        found = bounded(self._style.parse(reply.rest))
        calls = tuple(
            ToolCall(id=f"t{turn}c{index}", name=call.name, arguments=call.arguments)
            for index, call in enumerate(found.calls)
        )
        return ParsedTurn(
            text=found.text, calls=calls, errors=found.errors, reasoning=reply.reasoning, closed=bool(ends)
        )

    def compose(self, text: str, calls: Sequence[ToolCall]) -> array[int]:
        """Write a turn as the template does if that reads back, else in the call style alone.

        Raises:
            UsageError: Neither reads back: ``text`` has white space around it, or spells a call.
        """
        for ids in (self._compose_by_template(text, calls), self._compose_by_style(text, calls)):
            if ids is not None and self._reads_back(ids, text, calls):
                return ids
        raise UsageError(
            f"this turn cannot be written so that it reads back: {text[:80]!r} with {len(calls)} calls. "
            "Its text must have no white space around it and spell no call of the style "
            f"{self._style.name!r}, and arguments must be JSON."
        )

    def _make_extender(self) -> Extender | None:
        if self._form.turn_end is None or not self._form.openings:
            return None
        return Extender(
            template=self._template,
            builder=self._builder,
            control=self._control,
            turn_end=self._form.turn_end,
            opens_reasoning=self._form.opens_reasoning,
        )

    def _extension(self, previous: array[int], news: Sequence[Message], tools: Sequence[ToolSpec]) -> array[int] | str:
        """Give the ids to append, or the reason why there are none."""
        kinds: list[Kind] = [kind for kind in map(kind_of, news) if kind is not None]
        if self._extender is None:
            return "the template ends turns with no control token, or begins them with none"
        if len(kinds) != len(news):
            return "an assistant message is among the new ones: its ids are not known"
        closed = self._closed(previous)
        if isinstance(closed, str):
            return closed
        toolset = self._toolset(tools)
        proof = self._proof(self._extender, tuple(kinds), toolset, previous)
        if proof.failure is not None:
            return proof.failure
        escaper = self._control.escaper()
        try:
            bridge = self._bridge(self._extender, proof, news, toolset, escaper)
        except TemplateRefusal as error:
            return str(error)
        ids = self._control.encode(self._tokenizer, bridge, escaper)
        return ids[1:] if closed else ids

    def _bridge(
        self, extender: Extender, proof: Proof, news: Sequence[Message], toolset: _Toolset, escaper: Escaper
    ) -> str:
        if proof.pieces is not None:
            return spliced(proof.pieces, [escaper.text(message.text) for message in news])
        schemas = () if proof.bare else self._escaped(toolset, escaper).schemas
        return extender.bridge(news, tools=schemas, escaper=escaper)

    def _closed(self, previous: array[int]) -> bool | str:
        """Say whether the sampled turn has its end token; a text if what was sampled cannot be extended."""
        start = self._start_of_turn(previous)
        if start is None:
            return "the ids hold no generation prompt of this template"
        sampled = previous[start:]
        last = sampled[-1] if sampled else None
        closed = last in self._stops
        if sum(map(sampled.count, self._stops)) > closed:
            return "something was sampled after the end of the turn"
        if closed and last != self._turn_end_id:
            return f"the turn ended with id {last}, the template ends turns with {self._turn_end_id}"
        return closed

    def _start_of_turn(self, previous: array[int]) -> int | None:
        """Find the end of the last generation prompt, looking at the last few ids first."""
        for window in (256, 4096, len(previous)):
            offset = max(0, len(previous) - window)
            recent = previous[offset:].tobytes()
            start = max(_end_of_last(recent, opening) for opening in self._openings)
            if start >= 0:
                return offset + start // previous.itemsize
        return None

    def _proof(self, extender: Extender, kinds: tuple[Kind, ...], toolset: _Toolset, previous: array[int]) -> Proof:
        """Take the stronger proof if it holds, else the weaker one if it is all that is needed."""
        proof = self._proved(extender, kinds, toolset, reasoning=True)
        if proof.failure is None or self._has_reasoning(previous):
            return proof
        return self._proved(extender, kinds, toolset, reasoning=False)

    def _proved(self, extender: Extender, kinds: tuple[Kind, ...], toolset: _Toolset, *, reasoning: bool) -> Proof:
        key = (kinds, reasoning)
        if key not in toolset.proofs:
            shown = self._escaped(toolset, self._control.escaper())
            toolset.proofs[key] = extender.prove(kinds, reasoning=reasoning, tools=shown.schemas, tools_text=shown.text)
        return toolset.proofs[key]

    def _has_reasoning(self, previous: array[int]) -> bool:
        """Say whether reasoning stands anywhere in the ids. What text merely spells is no control token, so no match.

        Where the tags are no tokens of their own, the text decides, and a spelling counts.
        """
        if None not in self._thought_ids:
            data = previous.tobytes()
            return any(_end_of_last(data, number) >= 0 for number in self._thought_ids if number is not None)
        text = self._tokenizer.decode(previous)
        return OPEN in text or CLOSE in text

    def _compose_by_template(self, text: str, calls: Sequence[ToolCall]) -> array[int] | None:
        """Render the turn in the middle of a history, where it keeps its form when others follow."""
        if self._form.turn_end is None:
            return None
        escaper = self._control.escaper()
        before = [Message(id="u", role=Role.USER, text="ask")]
        turn = Message(id="a", role=Role.ASSISTANT, text=text, calls=tuple(calls))
        after = [Message(id=call.id, role=Role.TOOL, text="r", call_id=call.id, name=call.name) for call in calls]
        after = after or [Message(id="v", role=Role.USER, text="go on")]
        try:
            start, whole = (
                self._template.render(
                    self._builder.chat(messages, tools_text=None, escaper=escaper), (), generation_prompt=prompt
                )
                for messages, prompt in ((before, True), ([*before, turn, *after], False))
            )
        except TemplateRefusal:
            return None
        end = whole.find(self._form.turn_end, len(start))
        if end < 0 or not whole.startswith(start):
            return None
        return self._encode_turn(whole[len(start) : end + len(self._form.turn_end)], escaper)

    def _compose_by_style(self, text: str, calls: Sequence[ToolCall]) -> array[int]:
        escaper = self._control.escaper()
        written = [WrittenCall(name=escaper.text(call.name), arguments=escaper.value(call.arguments)) for call in calls]
        prefix = f"{CLOSE}\n\n" if self._form.opens_reasoning else ""
        body = prefix + self._style.write(escaper.text(text), written)
        ids = self._encode_turn(body, escaper) if body else array("i")
        ids.extend(self._stops[:1])
        return ids

    def _encode_turn(self, body: str, escaper: Escaper) -> array[int]:
        """Encode what stands after a generation prompt, as it is encoded there if that is an extension of it."""
        if self._form.openings:
            opening = self._tokenizer.encode(self._form.openings[0])
            ids = self._control.encode(self._tokenizer, self._form.openings[0] + body, escaper)
            if ids[: len(opening)] == opening:
                return ids[len(opening) :]
        return self._control.encode(self._tokenizer, body, escaper)

    def _reads_back(self, ids: array[int], text: str, calls: Sequence[ToolCall]) -> bool:
        turn = self.parse(ids, 0)
        same = [(call.name, call.arguments) for call in turn.calls] == [(call.name, call.arguments) for call in calls]
        return same and turn.text == text and not turn.errors and turn.reasoning is None

    def _toolset(self, tools: Sequence[ToolSpec]) -> _Toolset:
        specs = tuple(tools)
        for known in self._toolsets:
            if known.specs == specs:
                return known
        escaper = self._control.escaper()
        escaped = _escape_specs(specs, escaper)
        made = self._shown(_Toolset(specs=specs, schemas=(), text=None, clean=not escaper.originals), escaped)
        self._toolsets.appendleft(made)
        return made

    def _shown(self, toolset: _Toolset, specs: Sequence[ToolSpec]) -> _Toolset:
        if not specs:
            return toolset
        if self._form.traits.tools:
            return replace(toolset, schemas=tuple(map(tool_schema, specs)))
        return replace(toolset, text=describe_tools(specs, self._style))

    def _escaped(self, toolset: _Toolset, escaper: Escaper) -> _Toolset:
        """Give the set as it goes into a rendering with ``escaper``."""
        return toolset if toolset.clean else self._shown(toolset, _escape_specs(toolset.specs, escaper))


def _escape_specs(specs: Sequence[ToolSpec], escaper: Escaper) -> tuple[ToolSpec, ...]:
    return tuple(
        ToolSpec(
            name=escaper.text(spec.name),
            description=escaper.text(spec.description),
            parameters=escaper.value(spec.parameters),
        )
        for spec in specs
    )


def _dropped(control_ids: Mapping[str, int], style: CallStyle) -> frozenset[int]:
    """Give the control tokens that are no part of a reply's text, calls or reasoning."""
    kept = {*style.markers, OPEN, CLOSE}
    return frozenset(number for token, number in control_ids.items() if token not in kept)


def _end_of_last(data: bytes, pattern: bytes) -> int:
    """Find the last occurrence of ids in ids, both as bytes of int32, and give where it ends; -1 if there is none."""
    found = data.rfind(pattern)
    while found >= 0 and found % 4:
        found = data.rfind(pattern, 0, found + len(pattern) - 1)
    return found + len(pattern) if found >= 0 else -1
