"""Error texts for the policy: which argument, what was expected, what was got, and a call that works."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from agentenv.toolkit.output import visible

_TYPES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "greater than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "of at least {} characters",
    "maxLength": "of at most {} characters",
    "pattern": "matching {}",
    "minItems": "of at least {} items",
    "maxItems": "of at most {} items",
    "format": "in the form {}",
}
_EXCERPT_CHARS = 60
_NAMES_SHOWN = 50
_COMPARED = 20
"""Names of which the nearest is looked for; of more, those that begin alike. Each takes up to 0.1 ms."""
_COMPARED_CHARS = 40
_UNEXPECTED_SHOWN = 8


def expected(schema: Any) -> str:
    """Say what a schema asks for, in words; what is no object asks for nothing, but for ``false``."""
    if schema is False:
        return "no such value"
    if not isinstance(schema, Mapping):
        return "any value"
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return f"one of {', '.join(json.dumps(value, ensure_ascii=False) for value in values)}"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(expected(option) for option in schema[key]))
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    text = " or ".join(_TYPES.get(str(one), "any value") for one in kinds)
    if kind == "array" and schema.get("items"):
        text += f" (each item {expected(schema['items'])})"
    if schema.get("required"):
        text += f" with {', '.join(map(json.dumps, schema['required'][:_NAMES_SHOWN]))}"
    limits = [form.format(schema[key]) for key, form in _LIMITS.items() if key in schema]
    return f"{text} {' and '.join(limits)}" if limits else text


def got(value: Any) -> str:
    """Say what a value is, with a short excerpt."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the string {json.dumps(clip(value), ensure_ascii=False)}"
    if isinstance(value, int | float):
        return f"the number {clip(_digits(value))}"
    if isinstance(value, list):
        return f"an array of {len(value)} items"
    return "an object"


def clip(text: str) -> str:
    """Cut a text of the policy's own to a short, representable excerpt."""
    return visible(text) if len(text) <= _EXCERPT_CHARS else f"{visible(text[:_EXCERPT_CHARS])}..."


def unknown_tool(name: str, known: Iterable[str]) -> str:
    """Say that there is no such tool, what is near, and what there is."""
    names = list(known)
    listed = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
    return f'There is no tool "{clip(name)}".{near(name, names)} Available tools: {listed or "none"}.'


def missing(name: str, schema: Any) -> str:
    """Say that an argument is missing."""
    described = isinstance(schema, Mapping) and schema.get("description")
    text = f": {described}" if described else ""
    return f'argument "{name}" is missing: expected {expected(schema)}{text}'


def unexpected(name: str, known: Iterable[str]) -> str:
    """Say that there is no such argument."""
    names = list(known)
    listed = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
    return f'there is no argument "{clip(name)}".{near(name, names)} Arguments: {listed or "none"}'


def all_unexpected(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Say so of each of them; of a great many, of the first ones and how many more there are."""
    given, known = list(names), list(known)
    said = [unexpected(name, known) for name in given[:_UNEXPECTED_SHOWN]]
    if len(given) > len(said):
        said.append(f"and {len(given) - len(said)} more arguments that do not exist")
    return said


def wrong(name: str, schema: Any, value: Any, detail: str = "") -> str:
    """Say that an argument cannot be used."""
    where = f" ({detail})" if detail else ""
    return f'argument "{name}": expected {expected(schema)}, got {got(value)}{where}'


def near(name: str, known: Iterable[str]) -> str:
    """Give ``Did you mean …?`` if something is near."""
    names = list(known)
    compared = names if len(names) <= _COMPARED else [one for one in names if one[:1] == name[:1]][:_COMPARED]
    found = difflib.get_close_matches(name[:_COMPARED_CHARS], compared, n=1, cutoff=0.5)
    if not found:
        folded = {_folded(known_name): known_name for known_name in names}
        found = [folded[_folded(name)]] if _folded(name) in folded else []
    return f' Did you mean "{found[0]}"?' if found else ""


def invalid(tool: str, problems: Iterable[str], example: Mapping[str, Any]) -> str:
    """Put the problems of one call together, with a call that works."""
    listed = "\n".join(f"- {problem}" for problem in problems)
    call = json.dumps({"name": tool, "arguments": example}, ensure_ascii=False)
    return f'Invalid arguments for "{tool}":\n{listed}\nExample of a valid call: {call}'


def example_of(schema: Any) -> Any:
    """Make a value that suits a schema, for the example of a call.

    Values are taken from ``examples``, ``default``, ``enum`` and the limits; else a plain one of the type.
    """
    if not isinstance(schema, Mapping):
        return "text"
    if schema.get("examples"):
        return schema["examples"][0]
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return example_of(schema[key][0])
    return _plain(schema)


def _plain(schema: Mapping[str, Any]) -> Any:
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            return {name: example_of(properties.get(name, {})) for name in schema.get("required", ())}
        case "array":
            return [example_of(schema.get("items") or {})]
        case "integer" | "number":
            return _within(schema)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return "text"


def _within(schema: Mapping[str, Any]) -> int | float:
    if "minimum" in schema:
        return schema["minimum"]
    if "exclusiveMinimum" in schema:
        return schema["exclusiveMinimum"] + (1 if schema.get("type") == "integer" else 0.5)
    if "maximum" in schema:
        return schema["maximum"]
    return 1


def _folded(name: str) -> str:
    return name.casefold().replace("-", "_").replace(".", "_").strip("_")


def _digits(value: float) -> str:
    """Write a number, a huge integer by its size alone (Python refuses to print it)."""
    if isinstance(value, int) and value.bit_length() > 1024:
        return f"of about {int(value.bit_length() * 0.30103)} digits"
    return str(value)
