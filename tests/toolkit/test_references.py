"""Schemas without references: they say the same, and nothing that refers to itself or explodes is followed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agentenv.testing.strategies import json_values
from agentenv.toolkit.references import NotInlined, inlined
from hypothesis import given
from hypothesis import strategies as st

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "title": "Point"}


def test_definitions_are_put_where_they_are_referred_to() -> None:
    schema = {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/Point"}, "$ref": {"type": "string"}},
        "$defs": {"Point": POINT},
    }
    assert inlined(schema)["properties"] == {"at": POINT, "$ref": {"type": "string"}}
    assert "$defs" not in inlined(schema)
    assert "title" not in inlined(schema, leave_out=frozenset({"title"}))["properties"]["at"]


def test_what_stands_beside_a_reference_holds_as_well() -> None:
    definitions = {"definitions": {"a/b": POINT}}
    said = inlined({**definitions, "items": {"$ref": "#/definitions/a~1b", "description": "Where."}})
    assert said == {"items": {**POINT, "description": "Where."}}
    held = inlined({**definitions, "items": {"$ref": "#/definitions/a~1b", "minProperties": 1}})
    assert held == {"items": {"minProperties": 1, "allOf": [POINT]}}


def test_data_is_no_schema() -> None:
    schema = {"properties": {"a": {"default": {"$ref": "#/x"}, "enum": [{"$ref": "#/y"}]}}}
    assert inlined(schema) == schema


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}},
        {"$ref": "#/$defs/none"},
        {"$ref": 7},
        {"$ref": "other.json"},
        {"$id": "x", "$ref": "#/a"},
        {f"p{n}": {"a": {"$ref": f"#/p{n + 1}"}, "b": {"$ref": f"#/p{n + 1}"}} for n in range(40)} | {"p40": {}},
    ],
)
def test_what_cannot_do_without_references_is_said_to(schema: dict[str, Any]) -> None:
    """The last one would become 2 to the 40th schemas."""
    with pytest.raises(NotInlined):
        inlined(schema)


@given(
    schema=st.recursive(
        json_values | st.builds(lambda to: {"$ref": to}, st.sampled_from(["#", "#/$defs/a", "#/items", "#/$defs/a/0"])),
        lambda inner: st.dictionaries(st.sampled_from(["$defs", "a", "items", "allOf", "properties"]), inner),
        max_leaves=8,
    )
)
def test_any_json_is_inlined_or_refused(schema: Any) -> None:
    """Law: no JSON object makes it raise anything else, or leaves a reference behind where a schema stands."""
    try:
        plain = inlined({"items": schema})
    except NotInlined:
        return
    assert json.dumps(plain) is not None
    assert "$defs" not in plain
