"""Puts projects together: one broken module, two sound ones, their visible tests, and the checks nobody sees."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentenv_tasks.repair.grading import HiddenCheck
from agentenv_tasks.repair.unit import Bug, Check, Unit, UnitMaker, observe
from agentenv_tasks.repair.units_lists import LIST_UNITS
from agentenv_tasks.repair.units_numbers import NUMBER_UNITS
from agentenv_tasks.repair.units_state import STATE_UNITS
from agentenv_tasks.repair.units_text import TEXT_UNITS

UNITS: tuple[UnitMaker, ...] = (*LIST_UNITS, *TEXT_UNITS, *NUMBER_UNITS, *STATE_UNITS)

_PACKAGES = ("stockroom", "almanac", "workbench", "toolshed", "granary", "signalbox", "boathouse", "foundry")
_COMPANIONS = 2
_HIDDEN_TELLING = 4
_HIDDEN_SOUND = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """One project with one bug."""

    package: str
    bug: Bug
    path: str
    """The broken file."""
    broken: str
    right: str
    """Its text with and without the bug."""
    files: dict[str, bytes]
    hidden: tuple[HiddenCheck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sorted:
    """Checks of a unit with what a right module answers, parted by whether a bug shows in them."""

    telling: list[tuple[Check, list[dict[str, Any]]]]
    sound: list[tuple[Check, list[dict[str, Any]]]]


def build_project(rng: random.Random, index: int) -> Project:
    """Make project number ``index``: the unit goes round first, then the unit's bugs.

    Raises:
        ValueError: The bug shows in fewer than two checks, so no visible test could be told from a hidden one.
    """
    at = index % len(UNITS)
    unit = UNITS[at](rng)
    bug = unit.bugs[index // len(UNITS) % len(unit.bugs)]
    broken = unit.broken(bug)
    checks = _sort_checks(unit, broken, rng)
    if len(checks.telling) < 2:
        raise ValueError(f"{unit.name}: bug {bug.kind} ({bug.wrong!r}) shows in {len(checks.telling)} checks, needs 2")
    others = [maker(rng) for maker in rng.sample([*UNITS[:at], *UNITS[at + 1 :]], k=_COMPANIONS)]
    package = rng.choice(_PACKAGES)
    files = _modules(package, [unit, *others])
    files[f"{package}/{unit.name}.py"] = broken.encode()
    files[f"tests/test_{unit.name}.py"] = _visible_tests(package, unit.name, [*checks.sound[:2], checks.telling[0]])
    hidden = [*checks.telling[1 : 1 + _HIDDEN_TELLING], *checks.sound[2 : 2 + _HIDDEN_SOUND]]
    found = [_hidden(package, unit.name, check, answers) for check, answers in hidden]
    for other in others:
        sound = _sort_checks(other, other.source, rng).sound
        files[f"tests/test_{other.name}.py"] = _visible_tests(package, other.name, sound[:2])
        found.append(_hidden(package, other.name, *sound[2]))
    return Project(
        package=package,
        bug=bug,
        path=f"{package}/{unit.name}.py",
        broken=broken,
        right=unit.source,
        files=files,
        hidden=tuple(found),
    )


def _sort_checks(unit: Unit, source: str, rng: random.Random) -> _Sorted:
    checks = list(unit.checks)
    rng.shuffle(checks)
    parted = _Sorted(telling=[], sound=[])
    for check in checks:
        answers = observe(unit.source, check)
        tells = source != unit.source and observe(source, check) != answers
        (parted.telling if tells else parted.sound).append((check, answers))
    return parted


def _modules(package: str, units: Sequence[Unit]) -> dict[str, bytes]:
    ordered = sorted(units, key=lambda unit: unit.name)
    contracts = "\n\n".join(f"## {package}.{unit.name}\n\n{unit.contract}" for unit in ordered)
    names = ", ".join(unit.name for unit in ordered)
    files = {
        "README.md": f"# {package}\n\nRun the tests with `python3 -m unittest`.\n\n{contracts}\n".encode(),
        f"{package}/__init__.py": f'"""{package.capitalize()}: {names}."""\n'.encode(),
        "tests/__init__.py": b"",
    }
    return files | {f"{package}/{unit.name}.py": unit.source.encode() for unit in ordered}


def _hidden(package: str, name: str, check: Check, answers: Sequence[dict[str, Any]]) -> HiddenCheck:
    return HiddenCheck(module=f"{package}.{name}", calls=check.calls, expected=tuple(answers))


def _visible_tests(package: str, name: str, cases: Sequence[tuple[Check, Sequence[dict[str, Any]]]]) -> bytes:
    lines = [
        "import unittest",
        "",
        f"from {package} import {name}",
        "",
        "",
        f"class {name.title().replace('_', '')}Test(unittest.TestCase):",
    ]
    for number, (check, answers) in enumerate(cases, start=1):
        lines.append(f"    def test_{number}(self):")
        for (function, arguments), answer in zip(check.calls, answers, strict=True):
            lines += _assertion(f"{name}.{function}", arguments, answer)
        lines.append("")
    return ("\n".join(lines) + '\n\nif __name__ == "__main__":\n    unittest.main()\n').encode()


def _assertion(function: str, arguments: Sequence[Any], answer: dict[str, Any]) -> list[str]:
    given = ", ".join(map(repr, arguments))
    if "raises" in answer:
        return [f"        with self.assertRaises({answer['raises']}):", f"            {function}({given})"]
    lines = [f"        given = [{given}]", f"        self.assertEqual({function}(*given), {answer['value']!r})"]
    if any(isinstance(argument, list | dict) for argument in arguments):
        lines.append(f"        self.assertEqual(given, {answer['arguments']!r})")
    return lines
