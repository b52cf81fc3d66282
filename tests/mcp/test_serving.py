"""``agentenv serve-tools``: our tools, used through the official client, and by our own harness over HTTP.

Promises: names, schemas, results and their status are carried over; a sandbox is there when one is needed, and gone
at the end; calls of one client never meet.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import mcp_types
import pytest
from agentenv.core.deadline import Deadline
from agentenv.records.axes import CallStatus
from agentenv.toolkit.mcp import mcp_http
from agentenv.toolkit.mcp.connecting import describe
from agentenv.toolkit.mcp.servers import HttpAddress
from mcp import Client, MCPError, StdioServerParameters

from tests.cli.kit import Cli
from tests.mcp.kit import PATIENCE_S, episode

pytestmark = pytest.mark.mcp

SERVE = ["-m", "agentenv", "serve-tools"]


def text_of(result: mcp_types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, mcp_types.TextContent)
    return block.text


async def test_over_stdio_with_a_sandbox_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "a.txt").write_text("from outside")
    (tmp_path / "tmp").mkdir()
    server = StdioServerParameters(
        command=sys.executable,
        args=[*SERVE, "calculator", "shell", "--files", str(tmp_path / "given")],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    )
    async with Client(server) as client:
        info = client.server_info
        assert info is not None
        assert info.name == "agentenv"
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == ["calculator", "shell"]
        assert listed[1].input_schema["required"] == ["command"]
        assert text_of(await client.call_tool("calculator", {"expression": "6 * 7"})) == "42"
        said = await client.call_tool("shell", {"command": "cat a.txt; exit 3"})
        assert text_of(said) == "from outside\n[exit code 3]"
        assert said.meta is not None
        assert (said.meta["agentenv/status"], said.meta["agentenv/exit_code"]) == ("ok", 3)
        wrong = await client.call_tool("shell", {})
        assert wrong.is_error
        assert 'argument "command" is missing' in text_of(wrong)
        with pytest.raises(MCPError, match='There is no tool "shel"') as unknown:
            await client.call_tool("shel", {})
        assert unknown.value.code == mcp_types.INVALID_PARAMS
    assert list((tmp_path / "tmp").iterdir()) == [], "workspace and blobs are gone with the server"


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """An address where ``calculator`` is served by a process of its own."""
    process = subprocess.Popen([sys.executable, *SERVE, "calculator", "--http", "0"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process, process.stderr:
        line = process.stderr.readline()
        found = re.search(r"serving calculator at (http://127\.0\.0\.1:[0-9]+/mcp)", line)
        assert found, line
        yield found[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 130


async def test_over_http_by_our_own_harness(served: str) -> None:
    """What we serve and what we use are each other's counterpart."""
    described = await describe("calc", HttpAddress(url=served), None, Deadline.after(PATIENCE_S, "describing"))
    assert described.server == "agentenv"
    server = mcp_http("calc", served, described=described)
    async with episode(server) as tools:
        assert not tools.toolbox.needs_sandbox
        assert (await tools.call("calculator", expression="2 ** 10")).text == "1024"
        failed = await tools.call("calculator", expression="1 / 0")
        assert failed.status is CallStatus.ERROR
        (tool,) = tools.tools
        assert tool.server["reached"] == served
        assert tool.server["tools_sha256"] == described.sha256


async def test_many_clients_at_once_get_their_own_answers(served: str) -> None:
    answers: dict[int, str] = {}

    async def ask(n: int) -> None:
        async with Client(served) as client:
            answers[n] = text_of(await client.call_tool("calculator", {"expression": f"{n} * 1000"}))

    async with anyio.create_task_group() as group:
        for n in range(1, 9):
            group.start_soon(ask, n)
    assert answers == {n: str(n * 1000) for n in range(1, 9)}


def test_what_cannot_be_served_is_said(cli: Cli, served: str) -> None:
    port = served.split(":")[2].split("/", maxsplit=1)[0]
    for arguments, said in {
        ("calculator", "--http", port): f"Port {port} of 127.0.0.1 cannot be listened on: Address already in use",
        ("calculatr",): "There is no tool 'calculatr'. Did you mean 'calculator'?",
        ("shell", "--files", "/no/such/folder"): "there is no such folder",
        ("calculator", "--tool-timeout", "0"): "--tool-timeout must be more than 0 seconds",
    }.items():
        outcome = cli("serve-tools", *arguments)
        assert outcome.code == 2, outcome
        assert said in outcome.err
