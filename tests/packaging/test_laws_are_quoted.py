"""Each of the thirteen laws of ARCHITECTURE.md is quoted by a test that runs by default."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAWS = range(1, 14)


def quoted(path: Path) -> Iterator[tuple[int, str]]:
    """Numbers of the laws that the docstrings of a file's tests quote, with the test's name.

    A docstring of the module or of a class speaks for the tests in it.
    """
    module = ast.parse(path.read_text())
    for scope, above in _scopes(module, ast.get_docstring(module) or ""):
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) and scope.name.startswith("test_"):
            text = f"{above}\n{ast.get_docstring(scope) or ''}"
            for number in re.findall(r"\b[Ll]aws? (\d+)", text):
                yield int(number), scope.name


def _scopes(node: ast.Module | ast.ClassDef, above: str) -> Iterator[tuple[ast.stmt, str]]:
    for child in node.body:
        yield child, above
        if isinstance(child, ast.ClassDef):
            yield from _scopes(child, f"{above}\n{ast.get_docstring(child) or ''}")


@pytest.fixture(scope="module")
def tests_by_law() -> dict[int, set[str]]:
    found: dict[int, set[str]] = {number: set() for number in LAWS}
    for folder in (ROOT / "tests", ROOT / "agentenv" / "testing" / "contracts"):
        for path in folder.rglob("*.py"):
            if "vllm" not in path.relative_to(folder).parts and path != Path(__file__):
                for number, name in quoted(path):
                    found[number].add(f"{path.stem}.{name}")
    return found


@pytest.mark.parametrize("number", LAWS)
def test_a_law_is_quoted_by_a_test(tests_by_law: dict[int, set[str]], number: int) -> None:
    """A law that nothing checks is a wish. Tests that need the real engine do not count: they do not always run."""
    assert tests_by_law[number], f"no test quotes law {number}"


def test_no_test_quotes_a_law_that_is_none(tests_by_law: dict[int, set[str]]) -> None:
    assert set(tests_by_law) == set(LAWS)


def test_architecture_lists_them_all_in_order() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    listed = re.findall(r"^(\d+)\. \*\*", text.split("## The laws")[1].split("\n## ")[0], re.MULTILINE)
    assert [int(number) for number in listed] == list(LAWS)
