"""Finds out by rendering what a template can carry. Nothing is decided by a model's name.

Probes use words that occur nowhere else and look for them in what the template writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentenv.errors import ConfigError
from agentenv.rendering.calls.style import CallStyle
from agentenv.rendering.carriers import Traits
from agentenv.rendering.chat_template import ChatMessage, ChatTemplate, TemplateRefusal

USER, ANSWER, RESULT, SYSTEM = "qzuserqz", "qzanswerqz", "qzresultqz", "qzsystemqz"
TOOL, ARGUMENT, VALUE = "qztoolqz", "qzargumentqz", "qzvalueqz"
_SHORT_ID, _LONG_ID = "t0c0", "t00000c00"


def _user(text: str = USER) -> ChatMessage:
    return {"role": "user", "content": text}


def _answer(text: str = ANSWER, *, calls: Sequence[ChatMessage] = ()) -> ChatMessage:
    message: ChatMessage = {"role": "assistant", "content": text}
    return {**message, "tool_calls": list(calls)} if calls else message


def _call(number: str, *, as_text: bool, suffix: str = "") -> ChatMessage:
    arguments: Any = f'{{"{ARGUMENT}": "{VALUE}{suffix}"}}' if as_text else {ARGUMENT: f"{VALUE}{suffix}"}
    return {"type": "function", "id": number, "function": {"name": TOOL, "arguments": arguments}}


def _result(number: str | None, *, role: str = "tool") -> ChatMessage:
    message: ChatMessage = {"role": role, "content": RESULT}
    return message if number is None else {**message, "name": TOOL, "tool_call_id": number}


_SCHEMA: ChatMessage = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": "d",
        "parameters": {"type": "object", "properties": {ARGUMENT: {"type": "string", "description": "d"}}},
    },
}


class Prober:
    """Probes one template."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template

    def traits(self) -> Traits:
        """Find everything out but how calls are written.

        Raises:
            ConfigError: The template refuses even a single user message.
        """
        if not self._shows([_user()], [USER]):
            raise ConfigError("the chat template does not render a single user message: it is no template for chats.")
        traits = Traits(
            system_role=self._shows([{"role": "system", "content": SYSTEM}, _user()], [SYSTEM, USER]),
            adjacent_users=self._shows([_user(), _user("qzotherqz")], [USER, "qzotherqz"]),
            tools=self._shows_tools(),
        )
        traits = self._with_call_form(traits)
        return self._with_results(traits)

    def written_call(self, traits: Traits) -> str:
        """Give what the template writes for a turn of one call; empty where it writes none."""
        if not traits.calls:
            return ""
        call = self._form(traits, "")
        before = self._render([_user()], generation_prompt=True) or ""
        whole = self._render([_user(), _answer("", calls=[call])])
        if whole is None:
            whole = self._render([_user(), _answer("", calls=[call]), _result(call["id"])]) or ""
        common = next((i for i, (a, b) in enumerate(zip(before, whole, strict=False)) if a != b), len(before))
        return whole[common:]

    def turn_end(self, control: re.Pattern[str]) -> str | None:
        """Give the control token that follows an assistant's text at once, white space aside; None if none does."""
        written = self._render([_user(), _answer(), _user("qzotherqz")], generation_prompt=True)
        if written is None or ANSWER not in written:
            return None
        after = written.partition(ANSWER)[2].lstrip()
        match = control.match(after)
        return None if match is None else match.group()

    def openings(self, traits: Traits) -> list[str]:
        """Give what the template writes after the last message before a turn is sampled: a user's, and a result."""
        histories: list[list[ChatMessage]] = [[_user()]]
        if traits.tool_role:
            calls = [self._form(traits, "")] if traits.calls else []
            histories.append([_user(), _answer("" if calls else ANSWER, calls=calls), _result(self._number(traits))])
        written = [self._render(history, generation_prompt=True) for history in histories]
        words = (USER, RESULT)
        return [text.rpartition(word)[2] for text, word in zip(written, words, strict=False) if text is not None]

    def _with_call_form(self, traits: Traits) -> Traits:
        """Try the ways of giving a call until one is shown."""
        for long_ids in (False, True):
            for as_text in (False, True):
                form = replace(traits, long_ids=long_ids, arguments_as_text=as_text)
                call = self._form(form, "")
                if self._shows_turn([call], [TOOL, VALUE], text=""):
                    return replace(
                        form,
                        parallel_calls=self._shows_turn([call, self._form(form, "2")], [TOOL, VALUE + "2"], text=""),
                        text_beside_calls=self._shows_turn([call], [ANSWER, VALUE], text=ANSWER),
                    )
        return replace(traits, calls=False, parallel_calls=False, text_beside_calls=False)

    def _with_results(self, traits: Traits) -> Traits:
        if traits.calls:
            call = self._form(traits, "")
            history = [_user(), _answer("", calls=[call]), _result(call["id"])]
        else:
            history = [_user(), _answer(), _result(_SHORT_ID)]
        known = self._shows(history, [RESULT]) and (traits.tools or not self._any_role_will_do())
        bare = known and self._shows([_user(), _answer(), _result(None)], [RESULT])
        return replace(traits, tool_role=known, bare_results=bare)

    def _any_role_will_do(self) -> bool:
        """Say whether ``tool`` is written like a role nobody knows: then the model never learned it."""
        written = {role: self._render([_user(), _answer(), _result(None, role=role)]) for role in ("qzroleqz", "tool")}
        unknown = written["qzroleqz"]
        return unknown is not None and RESULT in unknown and written["tool"] == unknown.replace("qzroleqz", "tool")

    def _shows_tools(self) -> bool:
        system: ChatMessage = {"role": "system", "content": SYSTEM}
        written = self._render([system, _user()], tools=[_SCHEMA], generation_prompt=True)
        written = written or self._render([_user()], tools=[_SCHEMA], generation_prompt=True)
        return written is not None and TOOL in written and ARGUMENT in written

    def _form(self, traits: Traits, suffix: str) -> ChatMessage:
        number = self._number(traits)[:-1] + (suffix or "0")
        return _call(number, as_text=traits.arguments_as_text, suffix=suffix)

    def _number(self, traits: Traits) -> str:
        return _LONG_ID if traits.long_ids else _SHORT_ID

    def _shows_turn(self, calls: Sequence[ChatMessage], words: Sequence[str], *, text: str) -> bool:
        """Say whether a turn with calls is shown, followed by its results."""
        results = [_result(call["id"]) for call in calls]
        return self._shows([_user(), _answer(text, calls=calls), *results], words)

    def _shows(self, messages: Sequence[ChatMessage], words: Sequence[str]) -> bool:
        written = self._render(messages, generation_prompt=messages[-1]["role"] != "assistant")
        return written is not None and all(word in written for word in words)

    def _render(
        self, messages: Sequence[ChatMessage], *, tools: Sequence[ChatMessage] = (), generation_prompt: bool = False
    ) -> str | None:
        try:
            return self._template.render(messages, tools, generation_prompt=generation_prompt)
        except TemplateRefusal:
            return None


def detect_style(written: str, styles: Sequence[CallStyle], *, control: re.Pattern[str]) -> CallStyle | None:
    """Find the style that reads back what the template writes for a call; None if none does."""
    return next((style for style in styles if reads(style, written, control=control)), None)


def reads(style: CallStyle, written: str, *, control: re.Pattern[str]) -> bool:
    """Say whether ``style`` reads the call in ``written``, from `Prober.written_call`.

    Control tokens found by ``control`` that are no markers of the style are dropped first, as from a sampled turn.
    """
    found = style.parse(control.sub(lambda match: match.group() if match.group() in style.markers else "", written))
    return [(call.name, call.arguments) for call in found.calls] == [(TOOL, {ARGUMENT: VALUE})]
