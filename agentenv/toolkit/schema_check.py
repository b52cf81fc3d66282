"""Checks values against JSON Schemas of other people's: what their tools are given, and what they return.

Covers the keywords that tool schemas use: type, enum, const, properties, required, additionalProperties, items, anyOf,
oneOf (as anyOf), allOf, numeric and length limits. Other keywords are left to the tool; ``pattern`` for good reason: a
regular expression of a stranger's can take exponential time. Total on schemas that `schema_form` has no fault with.
Work is bounded and never held against the value: what is left to check after `_MOST_STEPS` is taken to fit.
Source: JSON Schema 2020-12, Validation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from agentenv.toolkit import explain

T = TypeVar("T")

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
_MOST_LEVELS = 64
"""Of a value and the alternatives of its schema together; what is deeper is left to the tool."""
_STEPS_ON_LOOP = 300
"""Some 0.5 ms; what takes more is checked in a thread."""
_MOST_STEPS = 200_000


class Mismatch(NamedTuple):
    """A value that is not what its schema asks for."""

    where: str
    """From the value that was checked, such as ``.rows[3]``; empty for itself."""
    schema: Any
    value: Any


class _TooLong(Exception):
    """There are no steps left."""


async def problems_of(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """List what is wrong with arguments, one line for each, for the policy; empty if nothing is."""
    return await _bounded(lambda check: check.problems(arguments, schema), [])


async def mismatch_of(value: Any, schema: Any) -> Mismatch | None:
    """Give the first place at which a value does not suit a schema."""
    return await _bounded(lambda check: check.mismatch(value, schema), None)


async def _bounded(work: Callable[[_Check], T], otherwise: T) -> T:
    """Check here if it is soon done, else in a thread, so that no value holds up other episodes."""
    try:
        return work(_Check(_STEPS_ON_LOOP))
    except _TooLong:
        pass
    try:
        return await asyncio.to_thread(work, _Check(_MOST_STEPS))
    except _TooLong:
        return otherwise


class _Check:
    def __init__(self, steps: int) -> None:
        self._left = steps

    def problems(self, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
        properties: Mapping[str, Any] = schema.get("properties", {})
        self._spend(len(schema.get("required", ())))
        found = [
            explain.missing(name, properties.get(name, {}))
            for name in schema.get("required", ())
            if name not in arguments
        ]
        for name, value in arguments.items():
            wrong = self.mismatch(value, properties[name]) if name in properties else None
            if wrong is not None:
                detail = f"at {name}{wrong.where}" if wrong.where else ""
                found.append(explain.wrong(name, wrong.schema, wrong.value, detail))
        if schema.get("additionalProperties") is False:
            found += explain.all_unexpected([name for name in arguments if name not in properties], properties)
        return found

    def mismatch(self, value: Any, schema: Any, where: str = "", level: int = 0) -> Mismatch | None:
        self._spend(1)
        if not isinstance(schema, dict):
            return Mismatch(where, schema, value) if schema is False else None
        if level > _MOST_LEVELS:
            return None
        if not self._itself_fits(value, schema, level):
            return Mismatch(where, schema, value)
        for inner in schema.get("allOf", ()):
            if (found := self.mismatch(value, inner, where, level + 1)) is not None:
                return found
        for step, item, inner in self._parts(value, schema):
            if (found := self.mismatch(item, inner, f"{where}{step}", level + 1)) is not None:
                return found
        return None

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooLong

    def _itself_fits(self, value: Any, schema: Mapping[str, Any], level: int) -> bool:
        """Check what concerns the value as a whole."""
        return (
            self._type_fits(value, schema.get("type"))
            and ("enum" not in schema or self._among(value, schema["enum"]))
            and ("const" not in schema or self._among(value, [schema["const"]]))
            and all(_limit_holds(value, key, schema[key]) for key in _HOLDS if key in schema)
            and all(self._any_fits(value, schema[key], level) for key in ("anyOf", "oneOf") if key in schema)
            and (not isinstance(value, dict) or self._has_all(value, schema.get("required", ())))
        )

    def _type_fits(self, value: Any, kind: Any) -> bool:
        if kind is None:
            return True
        kinds = kind if isinstance(kind, list) else [kind]
        self._spend(len(kinds) - 1)
        return any(one not in _IS or _IS[one](value) for one in kinds)

    def _any_fits(self, value: Any, options: list[Any], level: int) -> bool:
        return any(self.mismatch(value, option, "", level + 1) is None for option in options)

    def _among(self, value: Any, allowed: list[Any]) -> bool:
        """Compare as JSON does: true is not 1."""
        self._spend(len(allowed))
        return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed)

    def _has_all(self, value: dict[str, Any], names: list[str]) -> bool:
        self._spend(len(names))
        return all(name in value for name in names)

    def _parts(self, value: Any, schema: Mapping[str, Any]) -> Iterable[tuple[str, Any, Any]]:
        """Give the items of an array or object, each with its step from there and its schema."""
        if isinstance(value, list) and "items" in schema:
            for position, item in enumerate(value):
                yield f"[{position}]", item, schema["items"]
        elif isinstance(value, dict):
            properties: Mapping[str, Any] = schema.get("properties", {})
            rest = schema.get("additionalProperties", True)
            for name, item in value.items():
                yield f".{explain.clip(name)}", item, properties.get(name, rest)


def _limit_holds(value: Any, key: str, limit: Any) -> bool:
    """Check one limit; it says nothing about values of other types."""
    types = (str,) if key.endswith("Length") else (list,) if key.endswith("Items") else (int, float)
    if isinstance(value, bool) or not isinstance(value, types):
        return True
    return _HOLDS[key](value, limit)
