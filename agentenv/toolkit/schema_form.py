"""The form a JSON Schema must have for `schema_check` and `explain` to read it: those keywords that they know.

Schemas come from other people's servers and from files edited by hand. One that passes here makes neither of them
raise, whatever the arguments are. Source: JSON Schema 2020-12, Validation and Applicator vocabularies; draft 4 writes
exclusive limits as true or false, and draft 3 ``required``, which are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from agentenv.toolkit.output import json_value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_type(value: Any) -> bool:
    return _is_text(value) or (_is_texts(value) and bool(value))


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _is_items(value: Any) -> bool:
    return _is_schema(value) or (isinstance(value, list) and all(map(_is_schema, value)))


def _is_choice(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, value.values()))


_FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "type": ("the name of a type, or a list of such", _is_type),
    "enum": ("a list", _is_list),
    "examples": ("a list", _is_list),
    "required": ("a list of names", _is_texts),
    "description": ("a text", _is_text),
    "properties": ("an object of schemas", _is_named),
    "additionalProperties": ("a schema", _is_schema),
    "items": ("a schema", _is_items),
    **dict.fromkeys(("anyOf", "oneOf", "allOf"), ("a list of one schema or more", _is_choice)),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), ("a number", _is_number)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), ("a number of 0 or more", _is_count)),
}


def fault_of(schema: dict[str, Any], *, of_object: bool = False) -> str:
    """Say what is wrong with a schema; empty if nothing is.

    Args:
        schema: Any JSON object.
        of_object: Whether it has to be the schema of an object, as that of arguments is.

    >>> fault_of({"properties": {"a": {"type": "integer", "minimum": "1"}}})
    'at properties.a.minimum: expected a number, got "1"'
    """
    try:
        json_value(schema)
        msgspec.json.encode(schema)
    except TypeError as error:
        return str(error)
    except (ValueError, OverflowError):
        return "it has text that is no Unicode, or a huge number"
    if of_object and schema.get("type") != "object":
        return f'at type: expected "object", got {_excerpt(schema.get("type"))}'
    return _fault_within(schema, ())


def _fault_within(schema: Any, at: tuple[str, ...]) -> str:
    """Look at one schema and those in it; nested no deeper than `json_value` allows."""
    if not isinstance(schema, dict):
        return ""
    for key, (form, is_so) in _FORMS.items():
        if key in schema and not is_so(schema[key]):
            return f"at {'.'.join((*at, key))}: expected {form}, got {_excerpt(schema[key])}"
    for path, inner in _inner(schema):
        if fault := _fault_within(inner, (*at, *path)):
            return fault
    return ""


def _inner(schema: dict[str, Any]) -> list[tuple[tuple[str, ...], Any]]:
    """Give the schemas directly inside of one, each with its way."""
    found: list[tuple[tuple[str, ...], Any]] = [
        (("properties", name), inner) for name, inner in schema.get("properties", {}).items()
    ]
    for key in ("anyOf", "oneOf", "allOf"):
        found += [((key, str(position)), inner) for position, inner in enumerate(schema.get(key, ()))]
    found += [((key,), schema[key]) for key in ("items", "additionalProperties") if key in schema]
    return found


def _excerpt(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}..."
