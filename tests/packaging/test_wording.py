"""How messages are put together: texts of others stand in our sentences without breaking them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from agentenv.errors import UnknownNameError, ended
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
SOURCES = [path for folder in ("agentenv", "tools", "tasks") for path in sorted(ROOT.glob(f"{folder}/**/*.py"))]
OWN_TEXT = {"CannotCalculate", "NotAnExpression"}
"""Exceptions whose texts are written in the file that quotes them, without a stop."""


def caught(tree: ast.AST) -> Iterator[tuple[str, ast.ExceptHandler]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.name and not _names(node.type) & OWN_TEXT:
            yield node.name, node


def _names(kind: ast.expr | None) -> set[str]:
    return {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(kind)} if kind is not None else set()


def quoted_before_a_stop(tree: ast.AST) -> Iterator[int]:
    """Lines of f-strings that put the text of a caught exception in front of a full stop of their own."""
    for name, handler in caught(tree):
        for node in ast.walk(handler):
            if isinstance(node, ast.JoinedStr):
                for part, after in zip(node.values, node.values[1:], strict=False):
                    if isinstance(part, ast.FormattedValue) and isinstance(after, ast.Constant):
                        says = name in _names(part.value) and part.conversion == -1 and not _is_attribute(part.value)
                        if says and str(after.value).startswith("."):
                            yield node.lineno


def _is_attribute(value: ast.expr) -> bool:
    """Such as ``error.strerror``, which the system writes without a stop."""
    return isinstance(value, ast.Attribute)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_message_puts_its_own_stop_behind_an_error_it_quotes(path: Path) -> None:
    """Whether that text has one is for its author to say: `agentenv.errors.ended` gives it exactly one."""
    assert list(quoted_before_a_stop(ast.parse(path.read_text()))) == []


def test_the_search_finds_what_it_looks_for() -> None:
    bad = "try: ...\nexcept OSError as error:\n    raise E(f'{path}: {error}. Copy it again.')"
    assert list(quoted_before_a_stop(ast.parse(bad))) == [3]
    assert list(quoted_before_a_stop(ast.parse(bad.replace("{error}.", "{str(error)[:9]}.")))) == [3]
    assert list(quoted_before_a_stop(ast.parse(bad.replace("{error}.", "{ended(error)}")))) == []
    assert list(quoted_before_a_stop(ast.parse(bad.replace("{error}.", "{error.strerror}.")))) == []


@given(text=st.text("ab. :?!…\n", max_size=12))
def test_a_text_ends_once(text: str) -> None:
    """Exactly one end, whatever the text had; doing it again changes nothing; an empty text stays empty."""
    once = ended(text)
    assert ended(once) == once
    assert not once.endswith(("..", "?.", "!.", ":.", " ."))
    assert once == "" or once.endswith((".", "?", "!", "…"))


def test_an_unknown_name_says_where() -> None:
    said = str(UnknownNameError.of("script", "referense", ["reference", "nothing"], where=" in task t/1"))
    assert said == ("There is no script 'referense' in task t/1. Did you mean 'reference'? Known: nothing, reference.")
