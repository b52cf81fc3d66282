"""MCP servers in whole collections: a suite with a described one, and one that ``collect --mcp`` adds to any suite.

Promises: the manifest says which servers there were; the record has statuses and order; a server that is not what was
described is refused before the run begins.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agentenv.config.reading import stored_run
from agentenv.records.axes import CallStatus, StopReason

from tests.cli.kit import Cli, records
from tests.mcp.kit import PLAIN

pytestmark = pytest.mark.mcp

SUITE = Path(__file__).with_name("suites.py")
DESCRIPTION = Path(__file__).with_name("plain.mcp.json")


def manifest_of(folder: Path) -> dict[str, object]:
    with stored_run(folder) as stored:
        return stored.manifest


def test_a_server_drives_episodes_inside_the_sandbox(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("collect", SUITE, "--policy", "scripted", "-n", 2, "--out", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    for record in records(tmp_path / "run").values():
        assert (record.reason, record.reward) == (StopReason.FINAL_ANSWER, 1.0)
        assert [result.text for step in record.steps for result in step.results] == ["1", "2"]
    suite = manifest_of(tmp_path / "run")["suite"]
    assert isinstance(suite, dict)
    (server,) = suite["tool_servers"]
    assert (server["name"], server["server"], server["version"]) == ("plain", "plain", "1.2")
    assert (server["protocol"], server["reached"]) == ("2025-11-25", "python3 server.py")
    assert server["tools"]["count"] == "count"
    assert cli("verify", tmp_path / "run").code == 0


def test_a_server_that_dies_is_an_observation(cli: Cli, tmp_path: Path) -> None:
    assert cli("collect", SUITE, "--policy", "scripted:dies", "-n", 1, "--out", tmp_path / "run").code == 0
    (record,) = records(tmp_path / "run").values()
    ((result,), ()) = (step.results for step in record.steps)
    assert (result.status, record.fault) == (CallStatus.UNAVAILABLE, None)
    assert "ended with exit code 7" in result.text


def test_the_description_in_use_is_what_the_command_writes(cli: Cli, tmp_path: Path) -> None:
    """The file beside these tests is written by ``agentenv describe-mcp`` from the server beside them."""
    (tmp_path / "server.py").write_bytes(PLAIN.read_bytes())
    command = "plain=python3 {program}/server.py"
    outcome = cli("describe-mcp", command, "--program", tmp_path, "--out", tmp_path / "plain.mcp.json")
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("23 tools of plain 1.2, described in ")
    assert (tmp_path / "plain.mcp.json").read_bytes() == DESCRIPTION.read_bytes()
    printed = cli("describe-mcp", command, "--program", tmp_path)
    assert json.loads(printed.out) == json.loads(DESCRIPTION.read_text())


def test_a_server_that_changed_is_refused_before_a_folder_is_made(cli: Cli, tmp_path: Path) -> None:
    described = json.loads(DESCRIPTION.read_text())
    described["tools"][1]["description"] = "Counts backwards."
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "plain.py").write_bytes(PLAIN.read_bytes())
    (tmp_path / "plain.mcp.json").write_text(json.dumps(described))
    (tmp_path / "suites.py").write_bytes(SUITE.read_bytes())
    outcome = cli("collect", tmp_path / "suites.py", "--policy", "scripted", "-n", 1, "--out", tmp_path / "run")
    assert outcome.code == 2
    assert "Task 'driven/l1/000000': MCP server 'plain':" in outcome.err
    assert "changed since it was described: count; describe it anew" in outcome.err
    assert not (tmp_path / "run").exists()


def test_a_server_whose_files_the_task_lacks_is_refused_before_a_folder_is_made(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "plain.py").write_bytes(PLAIN.read_bytes())
    (tmp_path / "plain.mcp.json").write_bytes(DESCRIPTION.read_bytes())
    (tmp_path / "suites.py").write_text(SUITE.read_text().replace('files={"server.py"', 'files={"other.py"'))
    outcome = cli("collect", tmp_path / "suites.py", "--policy", "scripted", "-n", 1, "--out", tmp_path / "run")
    assert outcome.code == 2
    assert "Task 'driven/l1/000000': MCP server 'plain': it ended with exit code 2" in outcome.err
    assert "files=server.files of the task" in outcome.err
    assert not (tmp_path / "run").exists()


def test_collect_adds_servers_to_any_suite(cli: Cli, tmp_path: Path) -> None:
    """Names that are taken get the server's in front; what the run was made with is on record."""
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "server.py").write_bytes(PLAIN.read_bytes())
    command = [
        *("collect", SUITE, "--policy", "scripted", "-n", 1, "--out", tmp_path / "run"),
        *("--mcp", "more=python3 {program}/server.py odd-names", "--mcp-program", f"more={tmp_path / 'server'}"),
    ]
    outcome = cli(*command)
    assert outcome.code == 0, outcome.err
    (record,) = records(tmp_path / "run").values()
    assert record.reward == 1.0
    suite = manifest_of(tmp_path / "run")["suite"]
    assert isinstance(suite, dict)
    more = suite["tool_servers"][0]
    assert more["name"] == "more"
    assert more["tools"] == {
        "fs_read_file": "fs_read_file",
        "fs_read_file_f21bae": "fs.read/file",
        "more__echo": "echo",
        more_name(more["tools"]): "x" * 100,
    }
    assert cli(*command, "--resume").code == 0


def more_name(tools: dict[str, str]) -> str:
    (name,) = (shown for shown, own in tools.items() if own == "x" * 100)
    assert len(name) == 64
    return name


def test_what_cannot_work_is_refused_before_a_folder_is_made(cli: Cli, tmp_path: Path) -> None:
    for arguments, said in {
        ("--mcp", "python3"): "--mcp python3: expected NAME=COMMAND or NAME=URL",
        ("--mcp", "a=x 'y"): "the command cannot be read",
        ("--mcp", "a=http://user:secret@127.0.0.1/mcp"): "has a password in it",
        ("--mcp", "a=http://127.0.0.1:1/mcp"): "Is a server running at http://127.0.0.1:1/mcp, path included?",
        ("--mcp", "a=no-such-program"): "MCP server 'a': it ended with exit code 127",
        ("--mcp-program", "b=/tmp"): "--mcp-program b: there is no server of that name",
    }.items():
        outcome = cli("collect", "arithmetic", "--policy", "scripted", "--out", tmp_path / "run", *arguments)
        assert outcome.code == 2, outcome
        assert said in outcome.err
        assert "secret" not in outcome.err
        assert not (tmp_path / "run").exists()
