"""Llama 3: a bare JSON object with ``name`` and ``parameters``, sometimes after ``<|python_tag|>``.

Source: the chat templates of Llama 3.1 to 3.3. Several calls are separated by ``;`` or white space.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentenv.rendering.calls.json_text import Decoded, call_of, decode_at, dumps
from agentenv.rendering.calls.style import Found, WrittenCall, joined, mistake

_TAG = "<|python_tag|>"
_START = re.compile(r'\{\s*"(?:name|parameters|arguments)"\s*:|\{\s*"type"\s*:\s*"function"')
_SEPARATOR = re.compile(r"[\s;]*")
_FORM = '{"name": "TOOL", "parameters": {…}}'


class Llama3:
    """Writes calls bare, one per line."""

    name = "llama3"
    markers = (_TAG,)

    def parse(self, text: str) -> Found:
        before, tagged, after = text.partition(_TAG)
        if tagged:
            found = _read_calls(after)
            return Found(text=joined([before, found.text]), calls=found.calls, errors=found.errors)
        start = _START.search(text)
        if start is None:
            return Found(text=text.strip())
        found = _read_calls(text[start.start() :])
        return Found(text=joined([text[: start.start()], found.text]), calls=found.calls, errors=found.errors)

    def write(self, text: str, calls: Sequence[WrittenCall]) -> str:
        blocks = [dumps({"name": call.name, "parameters": call.arguments}) for call in calls]
        return "\n".join([text, *blocks] if text else blocks)


def _read_calls(text: str) -> Found:
    """Read calls one after another; what cannot be read is one error, and what follows a call is text."""
    calls: list[WrittenCall] = []
    position = 0
    while True:
        separator = _SEPARATOR.match(text, position)
        position = separator.end() if separator else position
        if position == len(text):
            return Found(text="", calls=tuple(calls))
        if calls and not _START.match(text, position):
            return Found(text=text[position:].strip(), calls=tuple(calls))
        decoded = decode_at(text, position)
        call = call_of(decoded.value) if isinstance(decoded, Decoded) else f"it is no valid JSON ({decoded})"
        if not isinstance(decoded, Decoded) or isinstance(call, str):
            rest = text[position:].strip()
            error = mistake(f"This is no tool call: {call}. Write it in this form:\n{_FORM}", rest)
            return Found(text=rest, calls=tuple(calls), errors=(error,))
        calls.append(call)
        position = decoded.end
