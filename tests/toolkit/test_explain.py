from __future__ import annotations

from typing import Any

import pytest
from agentenv.toolkit.explain import example_of, expected, got
from agentenv.toolkit.schema_check import mismatch_of


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "integer", "minimum": 3},
        {"type": "integer", "exclusiveMinimum": 3},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "integer", "maximum": -1},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "null"},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "array"},
        {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]},
        {"anyOf": [{"type": "null"}, {"type": "string"}]},
        {"enum": ["a", "b"]},
        {"const": 7},
        {"type": "integer", "default": 9},
        {"type": "string", "examples": ["e"], "default": "d"},
        {},
    ],
)
async def test_example_suits_its_schema(schema: dict[str, Any]) -> None:
    """Law: what is shown as an example passes the check."""
    assert await mismatch_of(example_of(schema), schema) is None


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "array", "items": {"type": "integer"}}, "an array (each item an integer)"),
        ({"type": ["string", "null"]}, "a string or null"),
        ({"type": "string", "maxLength": 5}, "a string of at most 5 characters"),
        ({"const": "x"}, 'one of "x"'),
        ({"enum": [1, None]}, "one of 1, null"),
        ({"anyOf": [{"type": "integer"}, {"type": "integer"}, {"type": "boolean"}]}, "an integer or true or false"),
        ({}, "any value"),
    ],
)
def test_expectations_are_said_in_words(schema: dict[str, Any], text: str) -> None:
    assert expected(schema) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (1.5, "the number 1.5"),
        (10**400, "the number of about 400 digits"),
        ("a\ud800", 'the string "a\\\\ud800"'),
        ("x" * 100, f'the string "{"x" * 60}..."'),
        ([1, 2], "an array of 2 items"),
        ({"a": 1}, "an object"),
    ],
)
def test_values_are_shown_short_and_safe(value: Any, text: str) -> None:
    assert got(value) == text
