"""Strict JSON out of a model's text: finite numbers, bounded depth, no lone surrogates, and never an exception."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from agentenv.rendering.calls.style import WrittenCall
from agentenv.rendering.control_text import well_formed

MAX_DEPTH = 64
_MIGHT_BE_SURROGATE = re.compile(r"[\ud800-\udfff]|\\u[dD][89a-fA-F]")
"""What JSON text has where a string in it may come out with a lone surrogate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A JSON value and where it ended."""

    value: Any
    end: int


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:20]} is too large")
    return number


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def decode_at(text: str, start: int) -> Decoded | str:
    """Decode the JSON value at ``start``, or say what is wrong with it."""
    while start < len(text) and text[start] in " \t\r\n":
        start += 1
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        return f"{error.msg} at character {max(0, error.pos - start)}"
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return str(error)[:100]
    if _might_be_deep(text, start, end) and _too_deep(value):
        return f"it is nested more than {MAX_DEPTH} levels deep"
    return Decoded(value=_clean(value) if _MIGHT_BE_SURROGATE.search(text, start, end) else value, end=end)


def _might_be_deep(text: str, start: int, end: int) -> bool:
    return text.count("{", start, end) + text.count("[", start, end) >= MAX_DEPTH


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [item for node in level if isinstance(node, (dict, list)) for item in _items(node)]
        if not level:
            return False
    return True


def _items(node: Any) -> list[Any]:
    return list(node.values()) if isinstance(node, dict) else node


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {well_formed(key): _clean(item) for key, item in value.items()}
    return value


def call_of(value: Any, *, argument_keys: tuple[str, ...] = ("arguments", "parameters")) -> WrittenCall | str:
    """Read a decoded value as a call, or say why it is none. No arguments at all means an empty object."""
    if not isinstance(value, dict):
        return "a call is a JSON object"
    function = value.get("function")
    if isinstance(function, dict):
        value = function
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        return 'the object has no "name" that is a non-empty string'
    key = next((key for key in argument_keys if key in value), None)
    arguments = {} if key is None else value[key]
    if isinstance(arguments, str):
        decoded = decode_at(arguments, 0)
        arguments = decoded.value if isinstance(decoded, Decoded) else arguments
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return f'"{key}" is not a JSON object'
    return WrittenCall(name=name.strip(), arguments=arguments)


def dumps(value: Any) -> str:
    """Write JSON as chat templates do: non-ASCII as it is."""
    return json.dumps(value, ensure_ascii=False)
