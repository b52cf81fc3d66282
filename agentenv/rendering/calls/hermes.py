"""Hermes and Qwen: ``<tool_call>`` around one JSON object per call.

Source: the chat templates of Hermes 2 Pro, Qwen 2.5 and Qwen 3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentenv.records.messages import ParseError
from agentenv.rendering.calls.json_text import Decoded, call_of, decode_at, dumps
from agentenv.rendering.calls.style import Found, WrittenCall, joined, mistake

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_TAG = re.compile(r"</?tool_call>")
_BARE = re.compile(r'\s*\{\s*"(?:name|arguments)"\s*:')
_FORM = '<tool_call>\n{"name": "TOOL", "arguments": {…}}\n</tool_call>'


class Hermes:
    """Source of the layout it writes: the Qwen 2.5 template."""

    name = "hermes"
    markers = (_OPEN, _CLOSE)

    def parse(self, text: str) -> Found:
        if _OPEN not in text and _CLOSE not in text:
            return _without_tags(text)
        rest: list[str] = []
        calls: list[WrittenCall] = []
        errors: list[ParseError] = []
        position = 0
        while (tag := _TAG.search(text, position)) is not None:
            rest.append(text[position : tag.start()])
            call, end = _read(text, tag)
            if isinstance(call, WrittenCall):
                calls.append(call)
            else:
                stretch = text[tag.start() : end]
                rest.append(stretch)
                errors.append(mistake(f"This is no tool call: {call}. Write it in this form:\n{_FORM}", stretch))
            position = end
        rest.append(text[position:])
        return Found(text=joined(rest), calls=tuple(calls), errors=tuple(errors))

    def write(self, text: str, calls: Sequence[WrittenCall]) -> str:
        blocks = [f"{_OPEN}\n{dumps({'name': c.name, 'arguments': c.arguments})}\n{_CLOSE}" for c in calls]
        return "\n".join([text, *blocks] if text else blocks)


def _without_tags(text: str) -> Found:
    """Text is an answer, unless it is nothing but a call without its tags."""
    text = text.strip()
    decoded = decode_at(text, 0) if _BARE.match(text) else ""
    if isinstance(decoded, Decoded) and decoded.end == len(text) and isinstance(call_of(decoded.value), WrittenCall):
        reason = f"A tool call stands between {_OPEN} and {_CLOSE}. Write it in this form:\n{_FORM}"
        return Found(text=text, errors=(mistake(reason, text),))
    return Found(text=text)


def _read(text: str, tag: re.Match[str]) -> tuple[WrittenCall | str, int]:
    """Read the stretch that begins with ``tag``, up to after its closing tag or before the next opening one.

    Returns:
        The call, or what is wrong with it, and where the stretch ends.
    """
    if tag.group() == _CLOSE:
        return f"{_CLOSE} without {_OPEN} before it", tag.end()
    decoded = decode_at(text, tag.end())
    following = _TAG.search(text, decoded.end if isinstance(decoded, Decoded) else tag.end())
    inner_end = len(text) if following is None else following.start()
    end = following.end() if following is not None and following.group() == _CLOSE else inner_end
    if isinstance(decoded, str):
        return f"between the tags stands no valid JSON ({decoded})", end
    if text[decoded.end : inner_end].strip():
        return "there is text after the JSON object", end
    return call_of(decoded.value), end
