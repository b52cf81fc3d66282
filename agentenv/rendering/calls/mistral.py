"""Mistral: ``[TOOL_CALLS]`` before a JSON list of calls, or before each ``name[ARGS]{…}``.

Source: the chat templates of Mistral 7B v0.3 (the list) and of the models from 2025 on (the second form).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agentenv.records.messages import ParseError
from agentenv.rendering.calls.json_text import Decoded, call_of, decode_at, dumps
from agentenv.rendering.calls.style import Found, WrittenCall, joined, mistake

_MARKER, _ARGS, _ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_NAMED = re.compile(r"\s*([^\s\[\]{}]+)\s*(?:\[CALL_ID\]\s*[^\s\[\]{}]*\s*)?\[ARGS\]")
_LIST_FORM = '[TOOL_CALLS][{"name": "TOOL", "arguments": {…}}]'
_NAMED_FORM = "[TOOL_CALLS]TOOL[ARGS]{…}"


class Mistral:
    """Reads both forms, writes one."""

    name = "mistral"
    markers = (_MARKER, _ARGS, _ID)

    def __init__(self, *, named: bool = False) -> None:
        """Choose the form to write: the JSON list, or with ``named`` the newer one."""
        self._named = named

    def parse(self, text: str) -> Found:
        first, *stretches = text.split(_MARKER)
        rest = [first]
        calls: list[WrittenCall] = []
        errors: list[ParseError] = []
        for stretch in stretches:
            found = self._read(stretch)
            calls.extend(found.calls)
            errors.extend(found.errors)
            rest.append(found.text)
        return Found(text=joined(rest), calls=tuple(calls), errors=tuple(errors))

    def write(self, text: str, calls: Sequence[WrittenCall]) -> str:
        if not calls:
            return text
        if self._named:
            return text + "".join(f"{_MARKER}{call.name}{_ARGS}{dumps(call.arguments)}" for call in calls)
        return text + _MARKER + dumps([{"name": call.name, "arguments": call.arguments} for call in calls])

    def _read(self, stretch: str) -> Found:
        """Read what follows one marker."""
        named = _NAMED.match(stretch)
        decoded = decode_at(stretch, named.end() if named else 0)
        if isinstance(decoded, str):
            return self._refused(stretch, f"there is no valid JSON ({decoded})")
        values: list[Any] = [decoded.value] if named or not isinstance(decoded.value, list) else decoded.value
        if named:
            values = [{"name": named.group(1), "arguments": decoded.value}]
        calls: list[WrittenCall] = []
        for value in values:
            call = call_of(value)
            if isinstance(call, str):
                return self._refused(stretch, call)
            calls.append(call)
        if not calls:
            return self._refused(stretch, "the list is empty")
        return Found(text=_after(stretch, decoded), calls=tuple(calls))

    def _refused(self, stretch: str, why: str) -> Found:
        form = _NAMED_FORM if self._named else _LIST_FORM
        whole = _MARKER + stretch
        reason = f"This is no tool call: {why}. Write it in this form:\n{form}"
        return Found(text=whole.strip(), errors=(mistake(reason, whole),))


def _after(stretch: str, decoded: Decoded) -> str:
    return stretch[decoded.end :].strip()
