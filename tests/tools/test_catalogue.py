"""Every tool is found through its entry point, and the catalogue lists it."""

from __future__ import annotations

from agentenv.toolkit import Toolbox

from tests.tools.registered import ROOT, tools


def test_entry_points_are_tools_with_distinct_names_and_hashes() -> None:
    box = Toolbox(tools())
    assert {spec.name for spec in box.specs} == {
        "calculator",
        "code",
        "files_edit",
        "files_list",
        "files_read",
        "files_search",
        "files_write",
        "http",
        "notes",
        "python",
        "shell",
        "sql",
        "submit",
    }
    assert len(set(box.sha256s.values())) == len(box.specs)


def test_every_argument_is_described_to_the_policy() -> None:
    for tool in tools():
        for name, schema in tool.spec.parameters["properties"].items():
            assert schema.get("description"), f"{tool.spec.name}.{name}"


def test_catalogue_lists_every_tool_and_argument() -> None:
    catalogue = (ROOT / "tools" / "README.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in catalogue.splitlines() if line.startswith("| `")}
    for tool in tools():
        row = rows[tool.spec.name]
        assert all(f"`{name}`" in row for name in tool.spec.parameters["properties"]), tool.spec.name
