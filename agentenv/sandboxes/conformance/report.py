"""What checks found, as lines for a terminal and as the page that is kept in the docs."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from agentenv.sandboxes.conformance.catalogue import CHECKS
from agentenv.sandboxes.conformance.expectations import Expected
from agentenv.sandboxes.conformance.running import Result

_WIDTH = max(map(len, CHECKS))
HEADING = f"   {'check':<{_WIDTH}}  {'expected':<13}  {'found':<13}  {'s':>5}  evidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A provider that the checks were run on."""

    identity: Mapping[str, str]
    results: Sequence[Result]

    @property
    def name(self) -> str:
        """Its kind."""
        return self.identity["kind"]

    @property
    def unexpected(self) -> list[Result]:
        """What was found and not expected."""
        return [result for result in self.results if not result.as_expected]


def _found(result: Result) -> Expected:
    return Expected.HOLDS if result.finding.holds else Expected.FAILS


def line(result: Result) -> str:
    """Give one line of the table whose heading is `HEADING`."""
    name, expected = result.check.name, result.expected.what
    mark = "  " if result.as_expected else "!!"
    why = f" (says: {result.expected.reason})" if result.expected.reason else ""
    return (
        f"{mark} {name:<{_WIDTH}}  {expected:<13}  {_found(result):<13}  {result.seconds:>5.1f}  "
        f"{result.finding.evidence}{why}"
    )


def summary(tried: Tried) -> str:
    """Say in a line how it went."""
    held = sum(result.finding.holds for result in tried.results)
    unexpected = ", ".join(result.check.name for result in tried.unexpected)
    return (
        f"{tried.name}: {len(tried.results)} checks, {held} hold; "
        f"{f'not as expected: {unexpected}' if unexpected else 'all as expected'}"
    )


def page(tried: Sequence[Tried]) -> str:
    """Give the page of the docs, in Markdown."""
    return "\n".join([*_head(tried), *_matrix(tried), *_exceptions(tried)])


def _head(tried: Sequence[Tried]) -> list[str]:
    backends = " ".join(f"--conformance {each.name}" for each in tried)
    return [
        "# Conformance of the sandboxes",
        "",
        "Each row is a hostile command, or an attempt to fool the harness with what one left behind, tried for real.",
        "This page is what the command printed that makes it:",
        "",
        f"    agentenv doctor {backends} --markdown",
        "",
        f"Made on {datetime.now(tz=UTC).date()}, on {_machine()}.",
        "",
        *_table(["sandbox", "version", "as user", "does not enforce, by its own word"], map(_about, tried)),
        "",
        "A check is expected to hold, unless what a sandbox says that it does not enforce is what the check tries.",
        "For a provider of your own, `agentenv doctor --conformance your_module:factory` runs the same checks, and",
        "`agentenv.testing.contracts.sandbox_conformance.SandboxConformance` does as tests.",
        "",
    ]


def _machine() -> str:
    return f"{platform.system()} {_kernel()} ({platform.machine()}) with Python {platform.python_version()}"


def _kernel() -> str:
    """Give the kernel's version, without what its builder calls it."""
    return platform.release().partition("-")[0]


def _about(each: Tried) -> list[str]:
    identity = each.identity
    version = identity.get("version", "").replace(platform.release(), _kernel())
    return [each.name, version, identity.get("user", ""), identity.get("weak") or "nothing"]


def _matrix(tried: Sequence[Tried]) -> list[str]:
    found = [{result.check.name: result for result in each.results} for each in tried]
    names = [name for name in CHECKS if any(name in results for results in found)]
    rows = [[f"`{name}`", CHECKS[name].expected, *(_cell(results.get(name)) for results in found)] for name in names]
    counts = [f"{sum(result.finding.holds for result in each.results)} of {len(each.results)}" for each in tried]
    return [
        "## What was found",
        "",
        *_table(["check", "what it asks for", *(each.name for each in tried)], [*rows, ["", "sum", *counts]]),
        "",
    ]


def _cell(result: Result | None) -> str:
    if result is None:
        return ""
    word = "holds" if result.finding.holds else "**no**"
    return word if result.as_expected else f"{word}, not as expected"


def _exceptions(tried: Sequence[Tried]) -> list[str]:
    rows = [
        [each.name, f"`{result.check.name}`", result.finding.evidence, _reason(result)]
        for each in tried
        for result in each.results
        if not result.finding.holds or not result.as_expected
    ]
    if not rows:
        return []
    return ["## Where one does not hold", "", *_table(["sandbox", "check", "what was seen", "expected"], rows), ""]


def _reason(result: Result) -> str:
    if result.expected.what is Expected.HOLDS:
        return "that it holds"
    depends = "depends on the machine" if result.expected.what is Expected.DEPENDS else "that it does not"
    return f"{depends}: {result.expected.reason}"


def _table(heading: list[str], rows: Iterable[list[str]]) -> list[str]:
    lines = [heading, ["---"] * len(heading), *rows]
    return [f"| {' | '.join(_in_cell(cell) for cell in each)} |" for each in lines]


def _in_cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")
