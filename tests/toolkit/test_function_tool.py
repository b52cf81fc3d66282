"""Functions made tools.

Promises: schema, texts and conversion come from the signature; what cannot be a tool is refused at decoration; any JSON
object as arguments reaches the function converted, or becomes a text that names the argument; a tool's own limit is
a result and never taken for anybody else's.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import anyio
import pytest
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.tool import InvalidArguments, Result, ToolContext
from agentenv.errors import ToolFault, UsageError
from agentenv.records.axes import CallStatus
from agentenv.records.messages import TaskEnd
from agentenv.toolkit import FunctionTool, sandbox_of, tool
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from tests.toolkit.kit import call_one, make_context


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Node:
    below: list[Node]


@tool
def paint(
    what: str,
    times: Annotated[int, Meta(ge=1, le=9)],
    colour: Colour = Colour.RED,
    at: Point | None = None,
    tags: list[str] = [],  # noqa: B006 - an empty list is copied by the converter
    mode: Literal["fast", "slow"] = "fast",
) -> str:
    """Paint something.

    Args:
        what: The thing.
        times: How often.
    """
    return f"{what} {times} {colour} {at} {tags} {mode}"


def test_spec_comes_from_signature_and_docstring() -> None:
    assert paint.spec.name == "paint"
    assert paint.spec.description == "Paint something."
    schema = paint.spec.parameters
    assert schema["type"] == "object"
    assert schema["required"] == ["what", "times"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["what"] == {"type": "string", "description": "The thing."}
    assert schema["properties"]["times"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "description": "How often.",
    }
    assert schema["properties"]["mode"]["enum"] == ["fast", "slow"]
    assert "$ref" not in json.dumps(schema)
    point = schema["properties"]["at"]["anyOf"][0]
    assert point["properties"]["x"] == {"type": "integer"}


async def test_arguments_are_converted() -> None:
    result = await call_one(paint, what="wall", times="3", colour="blue", at={"x": 1.0}, tags=["a"])
    assert result.status is CallStatus.OK
    assert result.text == f"wall 3 {Colour.BLUE} {Point(1, 0)} ['a'] fast"


async def test_converted_arguments_pass_unchanged() -> None:
    values = paint.convert({"what": "w", "times": 2, "colour": "blue", "at": {"x": 1}})
    assert paint.convert(values) == values


async def test_numbers_become_text_where_text_is_asked_for() -> None:
    assert (await call_one(paint, what=42, times=1)).text.startswith("42 1 ")
    assert (await call_one(paint, what=True, times=1)).status is CallStatus.INVALID_ARGUMENTS
    assert (await call_one(paint, what=10**5000, times=1)).status is CallStatus.INVALID_ARGUMENTS


async def test_error_text_names_argument_expectation_value_and_example() -> None:
    result = await call_one(paint, waht="x", times="many", at={"x": "left"}, mode="medium")
    assert result.status is CallStatus.INVALID_ARGUMENTS
    assert result.text.splitlines() == [
        'Invalid arguments for "paint":',
        '- argument "what" is missing: expected a string: The thing.',
        '- argument "times": expected an integer at least 1 and at most 9, got the string "many"',
        '- argument "at": expected an object with "x" or null, got an object (Expected `int`, got `str` - at `$.x`)',
        '- argument "mode": expected one of "fast", "slow", got the string "medium"',
        '- there is no argument "waht". Did you mean "what"? Arguments: what, times, colour, at, tags, mode',
        'Example of a valid call: {"name": "paint", "arguments": {"what": "text", "times": 1}}',
    ]


async def test_out_of_range_is_told() -> None:
    result = await call_one(paint, what="x", times=10)
    assert "at least 1 and at most 9, got the number 10" in result.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None, categories=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["what", "times", "colour", "at", "tags", "mode", "x"]) | st.text(
    st.characters(codec=None, categories=None), max_size=5
)


@given(arguments=st.dictionaries(NAMES, JSON, max_size=7))
async def test_any_json_object_is_converted_or_refused_with_a_text(arguments: dict[str, Any]) -> None:
    """Invariant: arguments that are any JSON object reach the function converted, or become a text for the policy."""
    result = await call_one(paint, make_context(cap=100_000), **arguments)
    if result.status is CallStatus.OK:
        assert {"what", "times"} <= arguments.keys()
    else:
        assert result.status is CallStatus.INVALID_ARGUMENTS
        assert result.text.startswith('Invalid arguments for "paint":\n- ')
    result.text.encode()


@given(arguments=st.dictionaries(NAMES, JSON, max_size=3))
async def test_the_example_shown_is_a_valid_call(arguments: dict[str, Any]) -> None:
    """Law: following the example of an error text leads to a valid call."""
    try:
        paint.convert(arguments)
    except InvalidArguments as error:
        call = json.loads(str(error).rsplit("Example of a valid call: ", 1)[1])
        assert call["name"] == "paint"
        paint.convert(call["arguments"])


def test_what_only_fails_together_still_has_a_line() -> None:
    """A key that is no text cannot come from JSON; the answer is a text all the same."""
    with pytest.raises(InvalidArguments, match='there is no argument "3"'):
        paint.convert({"what": "x", "times": 1, 3: 4})  # type: ignore[dict-item]


def test_deeply_nested_arguments_are_refused_or_passed() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidArguments):
        paint.convert({"what": deep, "times": 1})


async def test_context_and_deadline_are_filled_in_and_not_shown() -> None:
    @tool
    def look(context: ToolContext, deadline: Deadline, name: str = "x") -> str:
        """Look.

        Args:
            context: The harness's.
            name: What at.
        """
        return f"{context.output_cap_bytes} {deadline.name} {name}"

    assert list(look.spec.parameters["properties"]) == ["name"]
    assert (await call_one(look)).text == "2000 test x"
    assert (await call_one(look, context_="a")).status is CallStatus.INVALID_ARGUMENTS


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("text", "text"),
        (None, "done"),
        (3, "3"),
        (2.5, "2.5"),
        (True, "true"),
        ({"a": [1, "é", None]}, '{"a": [1, "é", null]}'),
        (Point(1, 2), '{"x": 1, "y": 2}'),
        (float("nan"), "NaN"),
        (2**80, str(2**80)),
    ],
)
async def test_returned_values_are_rendered(returned: Any, text: str) -> None:
    @tool
    def give() -> Any:
        """Give."""
        return returned

    assert (await call_one(give)).text == text


async def test_unrenderable_value_is_the_tools_fault() -> None:
    @tool
    def give() -> object:
        """Give."""
        return object()

    with pytest.raises(ToolFault, match="'give' raised TypeError"):
        await call_one(give)


async def test_ending_tool_hands_its_value_to_the_grader() -> None:
    @tool(ends=TaskEnd.COMPLETED)
    def finish(ok: bool, items: list[str]) -> Any:
        """Finish."""
        return items if ok else Result(text="not yet", status=CallStatus.ERROR)

    done = await call_one(finish, ok=True, items=["a\ud800"])
    assert (done.ends, done.value) == (TaskEnd.COMPLETED, ["a\\ud800"])
    refused = await call_one(finish, ok=False, items=[])
    assert (refused.ends, refused.value, refused.status) == (None, None, CallStatus.ERROR)


async def test_ending_tool_with_a_result_of_its_own_ends() -> None:
    @tool(ends=TaskEnd.FAILED)
    def give_up() -> Result:
        """Give up."""
        return Result(text="over", value=1)

    result = await call_one(give_up)
    assert (result.ends, result.value, result.text) == (TaskEnd.FAILED, 1, "over")


async def test_blocking_function_runs_in_a_thread() -> None:
    @tool(blocking=True)
    def where() -> int:
        """Say where."""
        return threading.get_ident()

    @tool
    def inline() -> int:
        """Say where."""
        return threading.get_ident()

    assert (await call_one(where)).text != str(threading.get_ident())
    assert (await call_one(inline)).text == str(threading.get_ident())


async def test_own_limit_is_a_result() -> None:
    """Law 12: a timeout is identified by the deadline that fired."""

    @tool(timeout_s=0.01)
    async def hang() -> str:
        """Hang."""
        await anyio.sleep_forever()
        return ""

    result = await call_one(hang)
    assert result.status is CallStatus.TIMEOUT
    assert "0.01 s" in result.text


async def test_earlier_deadline_of_the_harness_is_not_the_tools_limit() -> None:
    """Law 12: the harness's deadline passes through, even where the tool has a limit."""

    @tool(timeout_s=30)
    async def hang() -> str:
        """Hang."""
        await anyio.sleep_forever()
        return ""

    deadline = Deadline.after(0.01, "episode")
    with pytest.raises(DeadlineReached) as caught:
        async with deadline.enforce():
            await hang.call({}, make_context(), deadline)
    assert caught.value.deadline is deadline


async def test_foreign_timeout_error_is_not_taken_for_a_limit() -> None:
    """Law 12: never by an exception's name."""

    @tool(timeout_s=30)
    async def raising() -> str:
        """Raise."""
        raise TimeoutError("of some library")

    with pytest.raises(ToolFault, match="tool 'raising' raised TimeoutError"):
        await call_one(raising)


async def test_needing_a_sandbox_without_one_is_a_fault_that_names_the_tool() -> None:
    @tool(needs_sandbox=True)
    def touch(context: ToolContext) -> str:
        """Touch."""
        return repr(sandbox_of(context))

    assert touch.needs_sandbox
    with pytest.raises(ToolFault, match="'touch' needs a sandbox") as caught:
        await call_one(touch)
    assert not caught.value.retryable


def _undocumented(a: int) -> None: ...


def _stray(a: int) -> None:
    """Do.

    Args:
        b: No such parameter.
    """


def _unannotated(a) -> None:  # type: ignore[no-untyped-def]
    """Do."""


def _many(*a: int) -> None:
    """Do."""


def _keywords(**a: int) -> None:
    """Do."""


def _positional(a: int, /) -> None:
    """Do."""


def _unsupported(a: complex) -> None:
    """Do."""


def _opaque(a: object) -> None:
    """Do."""


def _unresolvable(a: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821 - the point of the test
    """Do."""


def _mutable(a: list[int] = [1]) -> None:  # noqa: B006 - the point of the test
    """Do."""


def _recursive(a: Node) -> None:
    """Do."""


def _generator(a: int) -> Any:
    """Do."""
    yield a


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (_undocumented, "no docstring"),
        (_stray, "describes b"),
        (_unannotated, "no annotation"),
        (_many, "no place in a JSON object"),
        (_keywords, "no place in a JSON object"),
        (_positional, "no place in a JSON object"),
        (_unsupported, "type complex has no JSON form"),
        (_opaque, "type object has no JSON form"),
        (_unresolvable, "cannot be resolved"),
        (_mutable, "unsupported annotation or default"),
        (_recursive, "refers to itself"),
        (_generator, "plain function"),
        (len, "plain function"),
        (paint, "plain function"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_at_decoration(function: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        tool(function)


async def _asleep() -> None:
    """Do."""


def _awake() -> None:
    """Do."""


@pytest.mark.parametrize(
    ("function", "options", "says"),
    [
        (_awake, {"name": "files.read"}, "letters, digits"),
        (_awake, {"name": "x" * 65}, "letters, digits"),
        (_asleep, {"blocking": True}, "blocking"),
        (_awake, {"timeout_s": 1}, "inline"),
        (_asleep, {"timeout_s": 0}, "positive"),
        (_asleep, {"timeout_s": float("nan")}, "positive"),
        (_awake, {"example": {"a": 1}}, "example is not a valid call"),
    ],
)
def test_options_that_cannot_be_are_refused(function: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        tool(**options)(function)


def test_options_are_kept() -> None:
    made = tool(name="other-name_2", parallel=True, needs_sandbox=True)(_awake)
    assert isinstance(made, FunctionTool)
    assert (made.spec.name, made.parallel, made.needs_sandbox, made.inline) == ("other-name_2", True, True, True)
    assert not tool(_asleep).inline
    assert repr(made) == "FunctionTool('other-name_2')"
    assert made.function is _awake


def test_hash_depends_on_spec_and_sources() -> None:
    plain = tool(_awake)
    assert plain.sha256 == tool(_awake).sha256
    assert len({plain.sha256, tool(name="b")(_awake).sha256, tool(sources=(json,))(_awake).sha256}) == 3
    with pytest.raises(UsageError, match="no source file"):
        _ = tool(sources=(type(sys)("made_up"),))(_awake).sha256


def test_hash_of_a_function_without_a_file_is_that_of_its_code() -> None:
    def typed(source: str) -> FunctionTool:
        names: dict[str, Any] = {}
        exec(f"def f() -> int:\n    'Do.'\n    return {source}", names)
        return tool(names["f"])

    assert typed("1").sha256 == typed("1").sha256
    assert typed("1").sha256 != typed("2").sha256
    assert typed("(lambda: 1)()").sha256 == typed("(lambda: 1)()").sha256
