"""What every registered tool promises, whatever it is called with: a new one is covered by being registered.

The arguments are any JSON at all, and then what the tool takes in every combination: texts that are empty, hostile, no
Unicode, numbers at the edge, its own example. All calls of one tool go into one episode, so that what one of them left
behind meets the next.
"""

from __future__ import annotations

from typing import Any

import pytest
from agentenv.core.tool import ToolContext
from agentenv.records.axes import CallStatus
from agentenv.records.messages import ToolResult
from agentenv.testing.strategies import json_values, texts
from agentenv.toolkit import FunctionTool
from agentenv.toolkit.output import visible
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentenv_tools.http import http_tool
from agentenv_tools.notes import notes_tool
from agentenv_tools.sql import sql_tool
from tests.toolkit.kit import call_one, make_context
from tests.tools.registered import tools

CAP = 4_000


async def nowhere(host: str, port: int) -> list[str]:
    return ["10.0.0.1"]


TOOLS = {tool.spec.name: tool for tool in tools()} | {
    "http that reaches a host": http_tool("a.test", resolve=nowhere),
    "notes that are short": notes_tool(cap_bytes=8),
    "sql that writes": sql_tool(writable=True),
}
ONE_EPISODE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
HOSTILE = st.sampled_from(
    [
        *("", " ", "\0", "\ud800", "\x1b[2J", "../..", "/", "-e", "--help", "'", '"', "$(", "(", "%s", "\n", "x.db"),
        *("http://a.test/", "http://a.test:0/", "file:///etc/passwd", "1/0", "raise SystemExit", "print(1"),
        *("SELECT 1", "exit 3", "kill -9 $$", "import os; os._exit(1)", "x" * 5_000, "[" * 300, "é" * 300),
    ]
)
NUMBERS = st.sampled_from([0, -1, 1, 2**63, -(2**80), 0.5, 1e308, -0.0])


OWN_ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "python": ({"code": "6 * 7"}, "42"),
    "shell": ({"command": "echo 4$((1 + 1))"}, "42"),
    "code": ({"code": "6 * 7"}, "42"),
    "calculator": ({"expression": "6 * 7"}, "42"),
}
"""Calls whose answer is known, made after each of the others."""


def arguments_of(tool: FunctionTool) -> st.SearchStrategy[dict[str, Any]]:
    properties: dict[str, dict[str, Any]] = tool.spec.parameters["properties"]
    anything = json_values | HOSTILE | NUMBERS
    loose = st.dictionaries(st.sampled_from([*properties]) | texts, anything, max_size=4)
    fitting = {name: fitting_of(name, schema, tool) for name, schema in properties.items()}
    required = {name: fitting.pop(name) for name in tool.spec.parameters.get("required", ())}
    return loose | st.fixed_dictionaries(required, optional=fitting)


def fitting_of(name: str, schema: dict[str, Any], tool: FunctionTool) -> st.SearchStrategy[Any]:
    if name == "timeout_s":  # else a sleep among the texts would be waited for
        return st.sampled_from([0.5, 1.0])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    examples = [st.just(tool.example[name])] if name in tool.example else []
    match schema.get("type"):
        case "string":
            return st.one_of(HOSTILE, texts, *examples)
        case "integer" | "number":
            return st.one_of(st.integers(-1, 60), NUMBERS, *examples)
        case "boolean":
            return st.booleans()
        case _:
            return st.one_of(json_values, st.lists(json_values, max_size=2), st.dictionaries(texts, texts), *examples)


def check_shown(result: ToolResult) -> None:
    """See that a policy can use it: some text within the cap, of which every byte can be shown, and no path of ours."""
    assert result.status in set(CallStatus) - {CallStatus.UNKNOWN_TOOL, CallStatus.REFUSED, CallStatus.CANCELLED}
    assert result.text
    assert visible(result.text) == result.text
    assert len(result.text.encode()) <= CAP
    assert "agentenv" not in result.text


@pytest.mark.parametrize("name", TOOLS)
@ONE_EPISODE
@given(data=st.data())
async def test_any_arguments_give_a_result_that_can_be_shown(
    name: str, context: ToolContext, data: st.DataObject
) -> None:
    """Law: no JSON object makes a tool raise; and whatever came before, a call is answered by what is its own."""
    tool = TOOLS[name]
    check_shown(await call_one(tool, context, **data.draw(arguments_of(tool))))
    if name in OWN_ANSWERS:
        arguments, text = OWN_ANSWERS[name]
        assert text in (await call_one(tool, context, **arguments)).text


@pytest.mark.parametrize("name", [name for name, tool in TOOLS.items() if not tool.needs_sandbox])
@ONE_EPISODE
@given(data=st.data())
async def test_without_a_sandbox_too(name: str, data: st.DataObject) -> None:
    """Law: as above, of the tools that a task without a sandbox can have."""
    context = make_context(cap=CAP)
    async with context.resources:
        check_shown(await call_one(TOOLS[name], context, **data.draw(arguments_of(TOOLS[name]))))
