"""Checks arguments against a tool's JSON Schema, for tools that are not functions of ours.

Covers the keywords that tool schemas use: type, enum, const, properties, required, additionalProperties, items, anyOf,
oneOf, numeric and length limits. Other keywords are left to the tool. Source: JSON Schema 2020-12, Validation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentenv.toolkit import explain

_IS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
}
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, limit: value >= limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
    "minLength": lambda value, limit: len(value) >= limit,
    "maxLength": lambda value, limit: len(value) <= limit,
    "minItems": lambda value, limit: len(value) >= limit,
    "maxItems": lambda value, limit: len(value) <= limit,
}
_MAX_DEPTH = 64


def problems_of(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """List what is wrong with arguments, one line for each, for the policy; empty if nothing is."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    found = [
        explain.missing(name, properties.get(name, {})) for name in schema.get("required", ()) if name not in arguments
    ]
    for name, value in arguments.items():
        if name in properties and not fits(value, properties[name]):
            found.append(explain.wrong(name, properties[name], value))
    if schema.get("additionalProperties") is False:
        found += explain.all_unexpected([name for name in arguments if name not in properties], properties)
    return found


def fits(value: Any, schema: Any, depth: int = 0) -> bool:
    """Say whether a value suits a schema. Deeper than 64 levels, nothing does."""
    if not isinstance(schema, dict):
        return schema is not False
    if depth > _MAX_DEPTH:
        return False
    return (
        _type_fits(value, schema.get("type"))
        and ("enum" not in schema or _among(value, schema["enum"]))
        and ("const" not in schema or _among(value, [schema["const"]]))
        and all(_limit_holds(value, key, schema[key]) for key in _HOLDS if key in schema)
        and all(_any_fits(value, schema[key], depth) for key in ("anyOf", "oneOf") if key in schema)
        and _parts_fit(value, schema, depth)
    )


def _type_fits(value: Any, kind: Any) -> bool:
    if kind is None:
        return True
    kinds = kind if isinstance(kind, list) else [kind]
    return any(one not in _IS or _IS[one](value) for one in kinds)


def _any_fits(value: Any, options: list[Any], depth: int) -> bool:
    return any(fits(value, option, depth + 1) for option in options)


def _among(value: Any, allowed: list[Any]) -> bool:
    """Compare as JSON does: true is not 1."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed)


def _limit_holds(value: Any, key: str, limit: Any) -> bool:
    """Check one limit; it says nothing about values of other types."""
    types = (str,) if key.endswith("Length") else (list,) if key.endswith("Items") else (int, float)
    if isinstance(value, bool) or not isinstance(value, types):
        return True
    return _HOLDS[key](value, limit)


def _parts_fit(value: Any, schema: Mapping[str, Any], depth: int) -> bool:
    if isinstance(value, list) and "items" in schema:
        return all(fits(item, schema["items"], depth + 1) for item in value)
    if not isinstance(value, dict):
        return True
    properties: Mapping[str, Any] = schema.get("properties", {})
    rest = schema.get("additionalProperties", True)
    return all(name in value for name in schema.get("required", ())) and all(
        fits(item, properties.get(name, rest), depth + 1) for name, item in value.items()
    )
