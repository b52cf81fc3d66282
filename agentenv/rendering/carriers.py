"""How our messages reach a template that may know no tools, no tool role, no system role.

`Traits` says what a template can carry (`agentenv.rendering.probing` finds it out); `ChatBuilder` writes messages
accordingly. The same builder serves whole histories and extensions, so both say the same thing in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentenv.records.messages import Message, Role, ToolCall, ToolSpec
from agentenv.rendering.calls.json_text import dumps
from agentenv.rendering.calls.style import CallStyle, WrittenCall
from agentenv.rendering.chat_template import ChatMessage
from agentenv.rendering.control_text import Escaper

_NUMBERED = re.compile(r"t([0-9]+)c([0-9]+)")
_LONG_ID = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a template can carry, each found out by rendering."""

    system_role: bool = True
    """Otherwise system text goes in front of the next user message."""
    tools: bool = True
    """It shows tool descriptions. Otherwise they go into the system text."""
    tool_role: bool = True
    """It knows results. Otherwise they are user messages."""
    bare_results: bool = True
    """It takes a result that answers no call (a parse error). Otherwise that is a user message."""
    calls: bool = True
    """It shows the calls of an assistant message. Otherwise they are part of its text."""
    parallel_calls: bool = True
    """It takes several calls in one message; otherwise those are part of the text."""
    text_beside_calls: bool = True
    """It keeps text next to calls; otherwise such calls are part of the text."""
    long_ids: bool = False
    """It demands call ids of nine letters and digits."""
    arguments_as_text: bool = False
    """It wants arguments as JSON text rather than as an object."""
    adjacent_users: bool = True
    """It takes two user messages in a row; otherwise they are joined."""


class ChatBuilder:
    """Turns messages into what a template reads."""

    def __init__(self, *, traits: Traits, style: CallStyle) -> None:
        self._traits = traits
        self._style = style

    def chat(self, messages: Sequence[Message], *, tools_text: str | None, escaper: Escaper) -> list[ChatMessage]:
        """Build the history, every text escaped.

        Args:
            messages: In order.
            tools_text: Tool descriptions for the system text; None if the template shows tools or there are none.
            escaper: Takes control tokens out of texts.
        """
        chat: list[ChatMessage] = []
        front = [] if tools_text is None else [tools_text]
        for index, message in enumerate(messages):
            if message.role is Role.SYSTEM and (index == 0 or not self._traits.system_role):
                front.insert(0 if index == 0 else len(front), escaper.text(message.text))
                continue
            if front and self._traits.system_role:
                chat.append({"role": "system", "content": "\n\n".join(front)})
                front = []
            self._append(chat, message, escaper)
            if front and message.role is Role.USER:
                chat[-1]["content"] = "\n\n".join([*front, chat[-1]["content"]])
                front = []
        if front:
            role = "system" if self._traits.system_role else "user"
            chat.append({"role": role, "content": "\n\n".join(front)})
        return chat

    def with_front(self, chat: Sequence[ChatMessage], text: str | None) -> list[ChatMessage]:
        """Put ``text`` where system text goes, in front of a history that has none and begins with the user."""
        if text is None:
            return list(chat)
        if self._traits.system_role:
            return [{"role": "system", "content": text}, *chat]
        return [{**chat[0], "content": f"{text}\n\n{chat[0]['content']}"}, *chat[1:]]

    def _append(self, chat: list[ChatMessage], message: Message, escaper: Escaper) -> None:
        text = escaper.text(message.text)
        match message.role:
            case Role.SYSTEM:
                chat.append({"role": "system", "content": text})
            case Role.USER:
                self._append_user(chat, text)
            case Role.ASSISTANT:
                chat.append(self.assistant(message.text, message.calls, escaper))
            case Role.TOOL:
                self._append_result(chat, message, text, escaper)

    def _append_user(self, chat: list[ChatMessage], text: str) -> None:
        """Add a user message, or join it to the last one where two in a row are not taken."""
        if not self._traits.adjacent_users and chat and chat[-1]["role"] == "user":
            chat[-1]["content"] += "\n\n" + text
        else:
            chat.append({"role": "user", "content": text})

    def _append_result(self, chat: list[ChatMessage], message: Message, text: str, escaper: Escaper) -> None:
        if self._traits.tool_role and message.call_id is not None:
            result: ChatMessage = {"role": "tool", "content": text, "tool_call_id": self.call_id(message.call_id)}
            if message.name is not None:
                result["name"] = escaper.text(message.name)
            chat.append(result)
        elif self._traits.tool_role and self._traits.bare_results:
            chat.append({"role": "tool", "content": text})
        elif self._traits.tool_role:
            self._append_refused(chat, text)
        else:
            self._append_shown(chat, text)

    def _append_refused(self, chat: list[ChatMessage], text: str) -> None:
        """Show a parse error where results must answer calls: in the last result, else as the user."""
        if chat and chat[-1]["role"] == "tool" and not self._traits.adjacent_users:
            chat[-1]["content"] += "\n\n" + text
        else:
            self._append_user(chat, text)

    def _append_shown(self, chat: list[ChatMessage], text: str) -> None:
        """Show a result as the user. Results in a row share one message, as in the Qwen templates."""
        shown = f"<tool_response>\n{text}\n</tool_response>"
        last = chat[-1] if chat else {}
        if last.get("role") == "user" and str(last["content"]).endswith("</tool_response>"):
            last["content"] += "\n" + shown
        else:
            self._append_user(chat, shown)

    def assistant(
        self, text: str, calls: Sequence[ToolCall], escaper: Escaper, *, keep_markup: bool = False
    ) -> ChatMessage:
        """Build an assistant message; ``keep_markup`` leaves control tokens in ``text`` as they are."""
        text = text if keep_markup else escaper.text(text)
        written = [WrittenCall(name=escaper.text(call.name), arguments=escaper.value(call.arguments)) for call in calls]
        if not written or not self.native(text, calls):
            return {"role": "assistant", "content": self._style.write(text, written)}
        return {
            "role": "assistant",
            "content": text,
            "tool_calls": [
                self._tool_call(self.call_id(call.id), new) for call, new in zip(calls, written, strict=True)
            ],
        }

    def native(self, text: str, calls: Sequence[ToolCall]) -> bool:
        """Say whether the template itself writes these calls."""
        traits = self._traits
        return traits.calls and (traits.parallel_calls or len(calls) < 2) and (traits.text_beside_calls or not text)

    def _tool_call(self, number: str, call: WrittenCall) -> ChatMessage:
        arguments: Any = dumps(call.arguments) if self._traits.arguments_as_text else call.arguments
        return {"type": "function", "id": number, "function": {"name": call.name, "arguments": arguments}}

    def call_id(self, number: str) -> str:
        """Give a call's id in the form that the template takes."""
        if not self._traits.long_ids:
            return number
        if match := _NUMBERED.fullmatch(number):
            turn, call = int(match.group(1)), int(match.group(2))
            return f"t{turn:05d}c{call:02d}" if turn < 100_000 and call < 100 else f"{1000 * turn + call:09d}"
        kept = "".join(letter for letter in number if letter.isascii() and letter.isalnum())
        return kept[-_LONG_ID:].rjust(_LONG_ID, "0")


def tool_schema(spec: ToolSpec) -> ChatMessage:
    """Write a tool as templates read it: the function schema of the OpenAI chat API."""
    return {
        "type": "function",
        "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters},
    }


def describe_tools(tools: Sequence[ToolSpec], style: CallStyle) -> str:
    """Describe tools for a system text: one line of JSON each, the form of a call, one example."""
    lines = [dumps({"name": t.name, "description": t.description, "parameters": t.parameters}) for t in tools]
    first = tools[0]
    example = style.write("", [WrittenCall(name=first.name, arguments=_example(first.parameters))])
    return "\n".join(
        [
            "You can call these tools (name, description, JSON schema of the arguments):",
            *lines,
            "",
            "To call a tool, write the call in exactly this form and end your turn:",
            example,
            "You are then shown the result between <tool_response> and </tool_response>.",
        ]
    )


def _example(parameters: dict[str, Any]) -> dict[str, Any]:
    """Make up arguments that fit a schema's required properties."""
    properties: dict[str, Any] = parameters.get("properties") or {}
    required = parameters.get("required") or list(properties)[:1]
    return {name: _example_value(name, properties.get(name) or {}) for name in required}


def _example_value(name: str, schema: dict[str, Any]) -> Any:
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    samples: dict[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}
    kind = schema.get("type")
    return samples.get(kind, name.upper()) if isinstance(kind, str) else name.upper()
