"""What a unit of a project is: a module with a contract, the ways it can be broken, and inputs that tell.

Sources here are this package's own text. They are run in this process to find out what a right module answers;
whatever a policy wrote is only ever run in its sandbox.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import Template
from textwrap import dedent
from types import CodeType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One way to break a module: a text that occurs once in the right source, and what stands there instead."""

    kind: str
    right: str
    wrong: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Calls made one after another in one process, as (function, arguments); all JSON-compatible."""

    calls: tuple[tuple[str, tuple[Any, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One module of a project."""

    name: str
    contract: str
    """What it must do, for the README: whoever knows it can write the module."""
    source: str
    bugs: tuple[Bug, ...]
    checks: tuple[Check, ...]

    def broken(self, bug: Bug) -> str:
        """Give the source with one bug.

        Raises:
            ValueError: The bug does not fit the source.
        """
        if self.source.count(bug.right) != 1:
            raise ValueError(f"{self.name}: {bug.right!r} must occur once, occurs {self.source.count(bug.right)} times")
        return self.source.replace(bug.right, bug.wrong)


UnitMaker = Callable[[random.Random], Unit]


def unit(
    name: str,
    *,
    contract: str,
    source: str,
    bugs: Sequence[tuple[str, str, str]],
    checks: Sequence[Check],
    **options: object,
) -> Unit:
    """Make a unit from templates: every ``$option`` in contract, source and bugs is filled in."""

    def fill(text: str) -> str:
        return Template(text).substitute(options)

    return Unit(
        name=name,
        contract=fill(" ".join(contract.split())),
        source=fill(dedent(source).lstrip("\n")),
        bugs=tuple(Bug(kind=kind, right=fill(right), wrong=fill(wrong)) for kind, right, wrong in bugs),
        checks=tuple(checks),
    )


def check(function: str, *arguments: Any) -> Check:
    """Make a check of one call."""
    return Check(calls=((function, arguments),))


def chain(*calls: tuple[str, tuple[Any, ...]]) -> Check:
    """Make a check of several calls in one process."""
    return Check(calls=calls)


def observe(source: str, checks: Sequence[Check]) -> list[list[dict[str, Any]]]:
    """Run checks against a source of this package, each in a fresh namespace.

    Returns:
        Per check, for each call what came back or was raised, and the arguments afterwards, as JSON would carry
        them. The same shape as the program in ``grading.py`` writes.
    """
    code = compile(source, "<unit>", "exec")
    return [_observe(code, check) for check in checks]


def _observe(code: CodeType, check: Check) -> list[dict[str, Any]]:
    namespace: dict[str, Any] = {"__name__": "observed"}
    exec(code, namespace)  # noqa: S102 - our own templates, never a policy's text
    seen: list[dict[str, Any]] = []
    for function, arguments in check.calls:
        given = json.loads(json.dumps(arguments))
        try:
            entry = {"value": namespace[function](*given)}
        except Exception as error:  # noqa: BLE001 - whatever a module raises is what is observed
            entry = {"raises": type(error).__name__}
        seen.append(json.loads(json.dumps({**entry, "arguments": given})))
    return seen
