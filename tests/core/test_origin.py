"""Where an exception came from: the user's own line, not the library's that raised it on the user's behalf."""

from __future__ import annotations

import json
from pathlib import Path

from agentenv.core.origin import raised


def caught(function: object) -> BaseException:
    try:
        function()  # type: ignore[operator]
    except BaseException as error:  # noqa: BLE001 - it is looked at
        return error
    raise AssertionError("nothing was raised")


def test_the_innermost_line_of_the_users_own_code_is_named() -> None:
    def own() -> None:
        json.loads("{")  # the innermost frames are the standard library's

    line = own.__code__.co_firstlineno + 1
    assert raised(caught(own)).endswith(f"({Path(__file__).name}:{line})")
    assert raised(caught(own)).startswith("raised JSONDecodeError: Expecting")


def test_without_a_line_of_the_users_there_is_no_place() -> None:
    assert raised(ValueError("no")) == "raised ValueError: no"
    assert raised(KeyboardInterrupt()) == "raised KeyboardInterrupt"


def test_a_long_text_keeps_its_place() -> None:
    def own() -> None:
        raise ValueError("x" * 10_000)

    said = raised(caught(own))
    assert len(said) < 700
    assert "test_origin.py:" in said
