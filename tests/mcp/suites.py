"""A suite whose policy is driven by an MCP server inside the sandbox: counts, dies, and goes on."""

from __future__ import annotations

from pathlib import Path

from agentenv.toolkit.mcp import mcp_stdio, mcp_tools
from agentenv.toolkit.suite import Task, Variant, call, exact_answer, messages, scripted, seeded_suite

HERE = Path(__file__).parent
PLAIN = mcp_stdio("plain", command=["python3", "server.py"], described=HERE / "plain.mcp.json")


@seeded_suite("driven", size=4, sources=(HERE / "plain.mcp.json", HERE / "servers" / "plain.py"))
def suite(draw: Variant) -> Task:
    return Task(
        id=draw.id,
        messages=messages("Count to two, and say what the second count was."),
        tools=mcp_tools(PLAIN),
        files={"server.py": (HERE / "servers" / "plain.py").read_bytes()},
        grader=exact_answer(2),
        scripts={"reference": scripted(call("count"), call("count"), "It was 2."), "dies": scripted(call("die"), "2")},
    )
