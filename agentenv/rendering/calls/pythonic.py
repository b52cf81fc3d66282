"""Pythonic: a list of Python calls with literal keyword arguments, ``[weather(city="Oslo"), clock()]``.

Source: the chat templates of Llama 3.2 (1B, 3B) and Llama 4. A list inside prose is prose: the reply is a call only
if the list begins a line and is all that follows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agentenv.errors import ended
from agentenv.rendering.calls.json_text import dumps
from agentenv.rendering.calls.literals import LiteralReader, NotALiteral
from agentenv.rendering.calls.style import Found, WrittenCall, joined, mistake

_START = re.compile(r"^[ \t]*\[\s*[A-Za-z_][\w.\-]*\s*\(", re.MULTILINE)
_TAGS = ("<|python_start|>", "<|python_end|>")
_FORM = '[TOOL(first="text", second=2)]'


class Pythonic:
    """Reads and writes ``[name(key=literal, …), …]``."""

    name = "pythonic"
    markers = _TAGS

    def parse(self, text: str) -> Found:
        for tag in _TAGS:
            text = text.replace(tag, "")
        start = _START.search(text)
        if start is None:
            return Found(text=text.strip())
        before, rest = text[: start.start()], text[start.start() :].strip()
        try:
            calls = _read(rest)
        except NotALiteral as error:
            reason = f"This is no tool call: {ended(error)} Write it in this form and nothing after it:\n{_FORM}"
            return Found(text=text.strip(), errors=(mistake(reason, rest),))
        return Found(text=joined([before]), calls=tuple(calls))

    def write(self, text: str, calls: Sequence[WrittenCall]) -> str:
        if not calls:
            return text
        line = "[" + ", ".join(f"{call.name}({_arguments(call.arguments)})" for call in calls) + "]"
        return f"{text}\n{line}" if text else line


def _read(text: str) -> list[WrittenCall]:
    reader = LiteralReader(text)
    reader.expect("[")
    calls: list[WrittenCall] = []
    while not reader.accept("]"):
        calls.append(_read_call(reader))
        if not reader.accept(","):
            reader.expect("]")
            break
    reader.expect_end()
    return calls


def _read_call(reader: LiteralReader) -> WrittenCall:
    name = reader.name(dotted=True)
    reader.expect("(")
    arguments: dict[str, Any] = {}
    while not reader.accept(")"):
        key = reader.name(dotted=False)
        reader.expect("=")
        arguments[key] = reader.value()
        if not reader.accept(","):
            reader.expect(")")
            break
    return WrittenCall(name=name, arguments=arguments)


def _arguments(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{key}={_literal(value)}" for key, value in arguments.items())


def _literal(value: Any) -> str:
    """Write a JSON value as a Python literal. JSON's own string escapes are all Python's too."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{dumps(key)}: {_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return dumps(value)
