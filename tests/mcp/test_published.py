"""Servers published by others drive episodes inside the sandbox: one in Python from PyPI, one in TypeScript from npm.

Run by ``make test-mcp``, which installs them; the sandbox has no network.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agentenv.config.reading import stored_run
from agentenv.records.axes import StopReason
from agentenv.records.messages import ToolResult

from tests.cli.kit import Cli, records
from tests.mcp.published import from_npm, from_pypi

pytestmark = [pytest.mark.mcp, pytest.mark.timeout(900)]

SUITE = """
from pathlib import Path
from agentenv.toolkit.mcp import mcp_stdio, mcp_tools
from agentenv.toolkit.suite import Task, Variant, call, exact_answer, messages, scripted, seeded_suite

HERE = Path(__file__).parent
SERVER = mcp_stdio("time", command={command!r}, env={env!r}, program=Path({program!r}), described=HERE / "server.json")

@seeded_suite("published", size=2)
def suite(draw: Variant) -> Task:
    return Task(
        id=draw.id,
        messages=messages("Use the tools."),
        tools=mcp_tools(SERVER),
        files=SERVER.files,
        grader=exact_answer({answer!r}),
        scripts={{"reference": scripted({calls})}},
    )
"""


def played(
    cli: Cli, folder: Path, *, program: Path, command: list[str], env: dict[str, str], answer: str, calls: str
) -> tuple[list[ToolResult], dict[str, str]]:
    """Describe the server, collect two episodes of a suite made of it, audit them.

    Returns:
        The results of the first episode, and what the manifest says of the server.
    """
    line = " ".join(["server=env", *(f"{name}={value}" for name, value in env.items()), *command])
    described = cli("describe-mcp", line, "--program", program, "--out", folder / "server.json")
    assert described.code == 0, described.err
    (folder / "suite.py").write_text(
        SUITE.format(program=str(program), command=command, env=env, answer=answer, calls=calls)
    )
    outcome = cli("collect", folder / "suite.py", "--policy", "scripted", "-n", 2, "--out", folder / "run")
    assert outcome.code == 0, outcome.err
    assert cli("verify", folder / "run").code == 0
    with stored_run(folder / "run") as stored:
        (server,) = stored.manifest["suite"]["tool_servers"]
    first, second = records(folder / "run").values()
    assert [(one.reason, one.reward) for one in (first, second)] == [(StopReason.FINAL_ANSWER, 1.0)] * 2
    return [result for step in first.steps for result in step.results], server


def test_mcp_server_time_from_pypi(cli: Cli, tmp_path: Path) -> None:
    results, server = played(
        cli,
        tmp_path,
        program=from_pypi("mcp-server-time", "2026.10.19"),
        command=["python3", "-m", "mcp_server_time", "--local-timezone", "UTC"],
        env={"PYTHONPATH": "{program}"},
        answer="21:00",
        calls='call("convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"), '
        'call("convert_time", source_timezone="Nowhere/At_all", time="12:00", target_timezone="UTC"), "21:00"',
    )
    assert [result.status.value for result in results] == ["ok", "error"]
    assert "T21:00:00+09:00" in results[0].text
    assert "Nowhere/At_all" in results[1].text
    assert set(server["tools"]) == {"get_current_time", "convert_time"}


def test_server_memory_from_npm(cli: Cli, tmp_path: Path) -> None:
    results, server = played(
        cli,
        tmp_path,
        program=from_npm("@modelcontextprotocol/server-memory", "2026.8.31"),
        command=["node", "{program}/node_modules/@modelcontextprotocol/server-memory/dist/index.js"],
        env={"MEMORY_FILE_PATH": "/tmp/memory.jsonl"},
        answer="blue",
        calls='call("create_entities", entities=[{"name": "sky", "entityType": "thing", "observations": ["blue"]}]), '
        'call("search_nodes", query="sky"), "blue"',
    )
    assert [result.status.value for result in results] == ["ok", "ok"]
    assert json.loads(results[1].text)["entities"][0]["observations"] == ["blue"]
    assert "read_graph" in server["tools"]
