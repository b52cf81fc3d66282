"""Puts projects together: one broken module, two sound ones, their visible tests, and the checks nobody sees."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentenv_tasks.repair.grading import AnsweredCheck
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
    visible: tuple[AnsweredCheck, ...]
    """What the tests in ``files`` check."""
    hidden: tuple[AnsweredCheck, ...]


def build_project(rng: random.Random, index: int) -> Project:
    """Make project number ``index``: the unit goes round first, then the unit's bugs.

    Raises:
        ValueError: The bug shows in fewer than two checks, so no visible test could be told from a hidden one.
    """
    at = index % len(UNITS)
    unit = UNITS[at](rng)
    bug = unit.bugs[index // len(UNITS) % len(unit.bugs)]
    broken = unit.broken(bug)
    others = [maker(rng) for maker in rng.sample([*UNITS[:at], *UNITS[at + 1 :]], k=_COMPANIONS)]
    package = rng.choice(_PACKAGES)
    telling, sound = _parted(unit, broken, package, rng)
    if len(telling) < 2:
        raise ValueError(f"{unit.name}: bug {bug.kind} ({bug.wrong!r}) shows in {len(telling)} checks, needs 2")
    visible = {unit.name: [*sound[:2], telling[0]]}
    hidden = [*telling[1 : 1 + _HIDDEN_TELLING], *sound[2 : 2 + _HIDDEN_SOUND]]
    for other in others:
        answered = _answered(other, rng.sample(_distinct(other), k=3), package)
        visible[other.name] = answered[:2]
        hidden.append(answered[2])
    files = _modules(package, [unit, *others])
    files[f"{package}/{unit.name}.py"] = broken.encode()
    files |= {f"tests/test_{name}.py": _tests(package, name, checks) for name, checks in visible.items()}
    return Project(
        package=package,
        bug=bug,
        path=f"{package}/{unit.name}.py",
        broken=broken,
        right=unit.source,
        files=files,
        visible=tuple(check for checks in visible.values() for check in checks),
        hidden=tuple(hidden),
    )


def _parted(
    unit: Unit, broken: str, package: str, rng: random.Random
) -> tuple[list[AnsweredCheck], list[AnsweredCheck]]:
    """Give the checks in which the bug shows, and those in which it does not, each in random order."""
    checks = _distinct(unit)
    rng.shuffle(checks)
    telling: list[AnsweredCheck] = []
    sound: list[AnsweredCheck] = []
    for answered, seen in zip(_answered(unit, checks, package), observe(broken, checks), strict=True):
        (sound if seen == list(answered.expected) else telling).append(answered)
    return telling, sound


def _distinct(unit: Unit) -> list[Check]:
    return list({repr(check): check for check in unit.checks}.values())


def _answered(unit: Unit, checks: Sequence[Check], package: str) -> list[AnsweredCheck]:
    return [
        AnsweredCheck(module=f"{package}.{unit.name}", calls=check.calls, expected=tuple(answers))
        for check, answers in zip(checks, observe(unit.source, checks), strict=True)
    ]


def _modules(package: str, units: Sequence[Unit]) -> dict[str, bytes]:
    ordered = sorted(units, key=lambda unit: unit.name)
    contracts = "\n\n".join(f"## {package}.{unit.name}\n\n{unit.contract}" for unit in ordered)
    names = ", ".join(unit.name for unit in ordered)
    files = {
        "README.md": f"# {package}\n\nRun the tests with `python3 -B -m unittest`.\n\n{contracts}\n".encode(),
        f"{package}/__init__.py": f'"""{package.capitalize()}: {names}."""\n'.encode(),
        "tests/__init__.py": b"",
    }
    return files | {f"{package}/{unit.name}.py": unit.source.encode() for unit in ordered}


def _tests(package: str, name: str, checks: Sequence[AnsweredCheck]) -> bytes:
    title = name.title().replace("_", "")
    lines = ["import unittest", "", f"from {package} import {name}", "", "", f"class {title}Test(unittest.TestCase):"]
    for number, check in enumerate(checks, start=1):
        lines.append(f"    def test_{number}(self):")
        for (function, arguments), answer in zip(check.calls, check.expected, strict=True):
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
