from __future__ import annotations

from typing import Any

import pytest
from agentenv.testing.strategies import json_objects, json_values
from agentenv.toolkit import explain
from agentenv.toolkit.schema_check import mismatch_of, problems_of
from agentenv.toolkit.schema_form import fault_of
from hypothesis import given
from hypothesis import strategies as st

SCHEMAS = st.recursive(
    st.booleans() | st.just({}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "array", "object", "made-up"])
            | st.lists(st.sampled_from(["null", "number", "boolean"]), min_size=1, max_size=2),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "required": st.lists(st.sampled_from("abc"), max_size=2),
            "additionalProperties": inner,
            "items": inner | st.lists(inner, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "enum": st.lists(json_values, max_size=2),
            "const": json_values,
            "default": json_values,
            "examples": st.lists(json_values, max_size=2),
            "minimum": st.integers(-9, 9) | st.floats(-9, 9),
            "exclusiveMaximum": st.integers(-9, 9),
            "minLength": st.integers(0, 3),
            "maxItems": st.integers(0, 3) | st.just(2.0),
            "pattern": st.sampled_from(["^(a+)+$", "(", ""]),
            "description": st.text(max_size=3),
        },
    ),
    max_leaves=6,
)
KEYWORDS = st.sampled_from(
    ["type", "properties", "required", "additionalProperties", "items", "anyOf", "oneOf", "allOf", "enum", "const"]
) | st.sampled_from(["default", "examples", "minimum", "exclusiveMinimum", "maxLength", "minItems", "pattern", "$ref"])
ODD_SCHEMAS = st.recursive(
    json_values,
    lambda inner: st.dictionaries(KEYWORDS, inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=10,
)
ARGUMENTS = st.dictionaries(st.sampled_from("abcx"), json_values, max_size=4)


async def fits(value: object, schema: object) -> bool:
    return await mismatch_of(value, schema) is None


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, [1, 2.0, -(2**80)], [True, 1.5, "1", None, float("nan"), float("inf")]),
        ({"type": "number"}, [1, 1.5], [True, "1"]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd", 12]),
        ({"type": ["string", "null"]}, ["a", None], [1]),
        ({"type": "boolean"}, [True], [1, "true"]),
        ({"enum": [1, "a"]}, [1, "a"], [True, 2, "b"]),
        ({"const": True}, [True], [1]),
        ({"minimum": 1, "exclusiveMaximum": 3}, [1, 2, "text"], [0, 3]),
        ({"maximum": 1, "exclusiveMinimum": 0}, [1, 0.5], [0, 2]),
        (
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
            [[1], [1, 2]],
            [[], ["a"], [1] * 3],
        ),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, [1, None], ["a"]),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, [1, None], ["a"]),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "required": ["a"],
                "additionalProperties": False,
            },
            [{"a": 1}],
            [{}, {"a": "1"}, {"a": 1, "b": 2}, []],
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"x": 1}, {}], [{"x": "1"}]),
        ({"type": "made-up"}, [1, "a"], []),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, [3, 4], [2, "a"]),
        ({"items": [{"type": "integer"}, {"type": "string"}]}, [["a"], 1], []),
        (True, [1], []),
        (False, [], [1]),
        ({}, [1, None, []], []),
    ],
)
async def test_fits(schema: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert await fits(value, schema), value
    for value in bad:
        assert not await fits(value, schema), value


async def test_what_is_deeper_than_64_levels_is_left_to_the_tool() -> None:
    deep: Any = "text"
    schema: Any = {"type": "integer"}
    for level in range(100):
        assert await fits(deep, schema) is (level > 64)
        deep, schema = [deep], {"type": "array", "items": schema}


async def test_the_place_of_what_does_not_fit_is_told() -> None:
    schema = {"type": "object", "properties": {"rows": {"items": {"required": ["id"]}}}}
    (problem,) = await problems_of({"rows": [{"id": 1}, {}]}, schema)
    assert problem == 'argument "rows": expected any value with "id", got an object (at rows[1])'


async def test_work_that_would_take_minutes_is_bounded_and_not_held_against_the_value() -> None:
    """A hundred million comparisons, with and without a fault at their end, come to an end all the same."""
    schema = {"properties": {"a": {"items": {"anyOf": [{"const": n} for n in range(5_000)]}}}}
    assert await problems_of({"a": [4_999] * 20_000}, schema) == []
    assert await problems_of({"a": ["text"] * 20_000}, schema) != []
    assert await problems_of({"a": [4_999] * 20_000 + ["text"]}, schema) == []


@given(arguments=ARGUMENTS)
async def test_any_json_object_gives_texts(arguments: dict[str, Any]) -> None:
    """Law: no arguments raise: each one that is unknown is a line (of many, the first); without a schema none is."""
    assert await problems_of(arguments, {}) == []
    closed = {"properties": {}, "additionalProperties": False}
    assert len(await problems_of(arguments, closed)) == min(len(arguments), 9)
    null = {name: {"type": "null"} for name in arguments}
    wrong = [value for value in arguments.values() if value is not None]
    assert len(await problems_of(arguments, {"properties": null})) == len(wrong)


@given(schema=st.dictionaries(KEYWORDS, ODD_SCHEMAS, max_size=4), arguments=ARGUMENTS)
async def test_a_schema_has_a_fault_or_makes_nothing_raise(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Law: any JSON object is refused as a schema, or no arguments make its check, its words or its example raise."""
    if not fault_of(schema):
        await check(schema, arguments)


@given(schema=SCHEMAS.filter(lambda schema: isinstance(schema, dict)), arguments=ARGUMENTS | json_objects)
async def test_a_schema_of_the_right_form_is_taken(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Law: what JSON Schema allows has no fault, but for values that not every reader of JSON can take."""
    fault = fault_of(schema)
    assert not fault or "no Unicode" in fault
    await check(schema if not fault else {}, arguments)


async def check(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    problems = await problems_of(arguments, schema)
    example = explain.example_of(schema)
    shown = explain.invalid("t", [*problems, explain.missing("a", schema), explain.wrong("a", schema, 1)], example)
    assert shown.isprintable() or "\n" in shown


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"properties": {"a": {"type": 7}}}, "at properties.a.type: expected the name of a type"),
        ({"properties": {"a": {"required": True}}}, "at properties.a.required: expected a list of names, got true"),
        ({"properties": []}, "at properties: expected an object of schemas, got []"),
        ({"items": {"anyOf": []}}, "at items.anyOf: expected a list of one schema or more"),
        ({"oneOf": [{"minimum": "1"}]}, 'at oneOf.0.minimum: expected a number, got "1"'),
        ({"exclusiveMinimum": True}, "at exclusiveMinimum: expected a number, got true"),
        ({"maxLength": -1}, "at maxLength: expected a number of 0 or more"),
        ({"additionalProperties": {"enum": {}}}, "at additionalProperties.enum: expected a list, got {}"),
        ({"examples": 5}, "at examples: expected a list"),
        ({"const": 10**5_000}, "a huge number"),
        ({"default": "\ud800"}, "text that is no Unicode"),
    ],
)
def test_faults_of_schemas_are_named(schema: dict[str, Any], said: str) -> None:
    assert said in fault_of(schema)


def test_a_schema_that_is_nested_without_end_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"items": schema}
    assert "64 levels" in fault_of(schema)
