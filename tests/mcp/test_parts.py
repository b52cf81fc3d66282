"""Names, descriptions and addresses, without any server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from agentenv.config.mcp import parse_server
from agentenv.errors import ConfigError
from agentenv.toolkit import tool
from agentenv.toolkit.mcp import Description, mcp_http, mcp_stdio, mcp_tools
from agentenv.toolkit.mcp.description import DescribedTool, read_description
from agentenv.toolkit.mcp.naming import shown_names
from agentenv.toolkit.mcp.servers import StdioAddress, packed
from hypothesis import given
from hypothesis import strategies as st

from tests.toolkit.kit import call_one

NAMES = st.lists(st.text(min_size=1, max_size=80) | st.sampled_from(["a.b", "a_b", "a/b"]), unique=True, max_size=8)


def described(*names: str, **more: object) -> Description:
    parameters = {"type": "object", "properties": {"x": True}, "required": ["x"], **more}
    tools = tuple(DescribedTool(name=name, description="Does it.", parameters=parameters) for name in names)
    return Description(server="s", version="1", protocol="2025-11-25", tools=tools)


@given(NAMES, st.sets(st.sampled_from(["a_b", "s__a_b", "x"])))
def test_every_tool_has_a_name_of_its_own_that_all_apis_take(names: list[str], taken: set[str]) -> None:
    """Invariant: shown names are 1 to 64 letters, digits, ``_``, ``-``, distinct, and none of the taken ones."""
    shown = shown_names(names, prefix="s", taken=taken)
    assert list(shown) == names
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in shown.values())
    assert len({*shown.values()} | taken) == len(names) + len(taken)


@given(NAMES)
def test_names_do_not_depend_on_their_order(names: list[str]) -> None:
    """Invariant: a server that lists its tools in another order gives them the same names."""
    assert shown_names(names, prefix="s", taken=()) == shown_names(names[::-1], prefix="s", taken=())


def test_names_that_meet_get_their_servers_in_front() -> None:
    @tool
    def read() -> None:
        """Read."""

    one = mcp_stdio("one", command=["a"], described=described("read", "write"))
    two = mcp_stdio("two", command=["b"], described=described("write"))
    assert [made.spec.name for made in mcp_tools(one, two, beside=[read])] == ["one__read", "write", "two__write"]
    with pytest.raises(ConfigError, match="Two MCP servers are called 'one'"):
        mcp_tools(one, one)


async def test_a_schema_that_says_true_of_an_argument_is_explained() -> None:
    """JSON Schema allows ``true`` wherever a schema is."""
    server = mcp_stdio("s", command=["a"], described=described("t"))
    result = await call_one(mcp_tools(server)[0])
    assert 'argument "x" is missing: expected any value' in result.text


def test_a_description_survives_its_file(tmp_path: Path) -> None:
    before = described("a.b", "c")
    (tmp_path / "d.json").write_bytes(before.encoded())
    after = read_description(tmp_path / "d.json")
    assert after == before
    assert after.sha256 == before.sha256
    assert before.difference(after) == ""
    assert before.difference(described("a.b")) == "gone since it was described: c"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"{}", "is no description of an MCP server: Object missing required field"),
        (described("a", "a").encoded(), "more than one tool called 'a'"),
        (described("").encoded(), "a tool without a name"),
        (described(*map(str, range(300))).encoded(), "has 300 tools; 256 are the most"),
        (described("a", more="x" * 70_000).encoded(), "take 70,"),
        (described("a", type="array").encoded(), """no valid schema: at type: expected "object", got "array"."""),
        (described("a", required=True).encoded(), "no valid schema: at required: expected a list of names, got true."),
        (described("a").encoded().replace(b'"output": null', b'"output": {"anyOf": 1}'), "no valid schema of its"),
        (described("a", nested=json.loads("[" * 90 + "]" * 90)).encoded(), "more than 64 levels"),
        (described("a").encoded().replace(b"true", b"1" * 30), "at properties: expected an object of schemas"),
    ],
)
def test_a_description_that_cannot_be_used_is_refused(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "d.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="MCP server") as refused:
        mcp_stdio("s", command=["a"], described=path)
    assert said in str(refused.value)


def test_equal_folders_are_packed_alike(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "__pycache__").mkdir(parents=True)
        (tmp_path / name / "b.py").write_text("1")
        (tmp_path / name / "a.py").write_text("2")
        (tmp_path / name / "__pycache__" / "c").write_text(name)
    assert packed(tmp_path / "one") == packed(tmp_path / "two")
    (tmp_path / "two" / "a.py").chmod(0o755)
    assert packed(tmp_path / "one") != packed(tmp_path / "two")


def test_a_program_is_unpacked_beside_the_workspace() -> None:
    address = StdioAddress(command=("python3", "{program}/x.py"), env={"PYTHONPATH": "{program}"}, program=b"tar")
    assert address.argv("s")[-5:] == ("sh", "/tmp/mcp-s", ".mcp/s.tar", "python3", "/tmp/mcp-s/x.py")
    assert address.environment("s") == {"PYTHONPATH": "/tmp/mcp-s"}


@pytest.mark.parametrize("url", ["ftp://a/b", "http://", "nonsense", "http://me@host/mcp"])
def test_odd_addresses_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        mcp_http("s", url, described=described("a"))


@pytest.mark.parametrize("name", ["", "a b", "x" * 33])
def test_odd_server_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="The name of an MCP server must be"):
        mcp_stdio(name, command=["a"], described=described("a"))


def test_what_the_command_line_takes() -> None:
    assert parse_server("a=python3 -c 'print(1)'", {}) == ("a", StdioAddress(command=("python3", "-c", "print(1)")))
    with pytest.raises(ConfigError, match="expected NAME=COMMAND or NAME=URL"):
        parse_server("=x", {})
