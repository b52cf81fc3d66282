"""What the README shows is what happens."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import click
import pytest
import typer.main
from agentenv.cli.listing import KINDS
from agentenv.cli.main import command_line
from agentenv.compressors.table import COMPRESSORS
from agentenv.config.policies import POLICIES
from agentenv.config.run_config import CALL_STYLES
from agentenv.records.axes import BudgetKind
from agentenv.registry import load_suite, suite_names
from agentenv.sandboxes.providers import PROVIDERS

from tests.bench.__main__ import SECTIONS

README = Path(__file__).parents[1] / "README.md"
CHANGELOG = README.with_name("CHANGELOG.md")
COLLECTING = README.parent / "docs" / "collecting.md"


def test_the_examples_of_the_readme_run() -> None:
    """The Python session in the README is run as a doctest."""
    results = doctest.testfile(str(README), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert results.attempted > 5
    assert results.failed == 0


def test_the_suite_of_the_readme_is_a_suite_of_at_most_twenty_lines(tmp_path: Path) -> None:
    """The file shown loads, makes tasks, and is as short as it is said to be."""
    block = next(
        part for part in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if "seeded_suite" in part
    )
    assert len(block.strip().splitlines()) <= 20
    path = tmp_path / "sums.py"
    path.write_text(block)
    task = load_suite(str(path)).task(3)
    assert set(task.scripts) >= {"reference", "nothing"}


def fenced(text: str) -> str:
    return "\n".join(re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


def shown_commands() -> list[list[str]]:
    """Every ``agentenv …`` line of the blocks of the README and of what explains it; lines that go on are one."""
    lines = fenced(README.read_text() + COLLECTING.read_text()).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("agentenv ")]


def commands() -> dict[str, click.Command]:
    """Every command by the words that call it."""
    group = cast("Any", typer.main.get_command(command_line()))
    nested = {name: each for name, each in group.commands.items() if hasattr(each, "commands")}
    flat = {name: each for name, each in group.commands.items() if name not in nested}
    return flat | {f"{outer} {name}": each for outer, sub in nested.items() for name, each in sub.commands.items()}


@pytest.mark.parametrize("words", shown_commands(), ids=" ".join)
def test_every_command_that_is_shown_can_be_called_so(words: list[str]) -> None:
    """Command and options are there and take such values; what it does is the other tests'."""
    name, rest = (" ".join(words[:2]), words[2:]) if words[0] == "policy" else (words[0], words[1:])
    commands()[name].make_context(name, rest)


def test_every_command_is_described() -> None:
    """In the README's table, and in the changelog."""
    text, changes = README.read_text(), CHANGELOG.read_text()
    for name in commands():
        assert f"| `agentenv {name}" in text, name
        assert f"`agentenv {name}" in changes or f"`{name}`" in changes, name


def test_every_option_that_is_named_exists() -> None:
    """Of ours: those in blocks of other programs (vLLM, pip) stand in lines that begin with their names."""
    own = {
        spelled
        for each in commands().values()
        for parameter in each.params
        for spelled in (*parameter.opts, *parameter.secondary_opts)
    }
    own |= {"--help", "--version"}
    for path in (README, CHANGELOG, COLLECTING):
        lines = [
            line
            for line in path.read_text().splitlines()
            if not re.match(r"vllm |docker compose |.*pip install|.*tests\.bench|.*logprobs-mode", line)
        ]
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join(lines)))
        assert named <= own, path.name
        assert named


def test_every_option_of_collect_is_explained() -> None:
    """In the README or in the page that it links: none is found in the help alone."""
    explained = README.read_text() + COLLECTING.read_text()
    assert f"({COLLECTING.relative_to(README.parent)})" in README.read_text()
    for parameter in commands()["collect"].params:
        spelled = {*parameter.opts, *parameter.secondary_opts}
        if parameter.param_type_name == "option":
            assert any(re.search(rf"{name}(?![\w-])", explained) for name in spelled), spelled


def test_every_kind_of_thing_is_named() -> None:
    row = next(line for line in README.read_text().splitlines() if line.startswith("| `agentenv list"))
    assert set(re.findall(r"`([a-z]+)`", row)) == set(KINDS)


def test_every_budget_policy_suite_sandbox_and_compressor_is_in_the_changelog() -> None:
    names = {*POLICIES, *PROVIDERS, *COMPRESSORS, *suite_names(), *CALL_STYLES}
    assert {name for name in names if f"`{name}`" not in CHANGELOG.read_text()} == set()
    shown = README.read_text()
    assert [kind for kind in BudgetKind if f"`{kind.value}`" not in shown] == []


@pytest.mark.parametrize("path", [README, README.with_name("CONTRIBUTING.md"), README.with_name("tests") / "README.md"])
def test_every_target_of_make_that_is_named_exists(path: Path) -> None:
    there = set(re.findall(r"^([a-z-]+):", README.with_name("Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", path.read_text(), re.MULTILINE))
    assert named <= there
    assert named


def test_every_section_of_the_benchmark_has_a_row() -> None:
    table = [line for line in README.read_text().splitlines() if re.search(r"(x|%) \|.*` \|$", line)]
    assert {re.findall(r"`([a-z]+)` \|$", line)[0] for line in table} == set(SECTIONS)


@pytest.mark.parametrize("before", ["", "import agentenv.gym"])
def test_both_ways_to_an_environment_work_in_a_new_process(before: str) -> None:
    """Gymnasium finds no environment of ours by itself; the id alone is an error until the module was imported."""
    name = "agentenv/arithmetic-v0" if before else "agentenv.gym:agentenv/arithmetic-v0"
    code = f"{before}\nimport gymnasium\nenv = gymnasium.make({name!r})\nenv.reset(seed=0)\nenv.close()\n"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=500)
    if not before:
        alone = code.replace("agentenv.gym:", "")
        done = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, timeout=500, check=False)
        assert "NamespaceNotFound" in done.stderr
