from __future__ import annotations

from typing import Any

import pytest
from agentenv.toolkit.schema_check import fits, problems_of
from hypothesis import given
from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


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
        (True, [1], []),
        (False, [], [1]),
        ({}, [1, None, []], []),
    ],
)
def test_fits(schema: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert fits(value, schema), value
    for value in bad:
        assert not fits(value, schema), value


def test_deep_values_do_not_fit() -> None:
    deep: Any = 1
    schema: Any = {"type": "integer"}
    for _ in range(100):
        deep, schema = [deep], {"type": "array", "items": schema}
    assert not fits(deep, schema)


@given(arguments=st.dictionaries(st.text(max_size=3), JSON))
def test_any_json_object_gives_texts(arguments: dict[str, Any]) -> None:
    """Law: no arguments raise: each one that is unknown is a line (of many, the first); without a schema none is."""
    assert problems_of(arguments, {}) == []
    assert len(problems_of(arguments, {"properties": {}, "additionalProperties": False})) == min(len(arguments), 9)
    null = {name: {"type": "null"} for name in arguments}
    wrong = [value for value in arguments.values() if value is not None]
    assert len(problems_of(arguments, {"properties": null})) == len(wrong)
