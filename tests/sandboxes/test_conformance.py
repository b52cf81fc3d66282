"""Every kind of sandbox is held to the suite; the suite finds what is wrong; its table says what the back-ends say."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from agentenv.errors import ConfigError, SandboxFault, UnknownNameError
from agentenv.sandboxes.cgroups import Cgroups, find_cgroups
from agentenv.sandboxes.conformance.catalogue import CHECKS
from agentenv.sandboxes.conformance.check import Bench
from agentenv.sandboxes.conformance.expectations import (
    BACKENDS,
    HOLDS,
    TOTAL_MEMORY,
    WEAKNESSES,
    Expected,
    contradictions,
    expectation,
)
from agentenv.sandboxes.conformance.factories import make_provider
from agentenv.sandboxes.conformance.report import Tried, line, page, summary
from agentenv.sandboxes.conformance.running import run_check
from agentenv.sandboxes.providers import PROVIDERS
from agentenv.testing.contracts.sandbox_conformance import SandboxConformance
from agentenv.testing.sandboxes import InMemoryProvider
from tests.sandboxes.kinds import ALL, KINDS

ROOT = Path(__file__).parents[2]


class TestBwrapConformance(SandboxConformance):
    factory = "bwrap"


class TestNamespacesConformance(SandboxConformance):
    factory = "namespaces"


@pytest.mark.slow
class TestLandlockConformance(SandboxConformance):
    factory = "landlock"


@pytest.mark.slow
class TestNoneConformance(SandboxConformance):
    factory = "none"


# The suite finds what is wrong.


@pytest.mark.parametrize(
    "name",
    [
        "caps_nnp_seccomp", "dev_shm_fill", "host_env_secret", "host_pids_visible", "kill_all", "net_egress",
        "proc_links_of_others", "ptrace_other", "risky_syscalls", "sandboxes_apart", "tmp_fill", "unix_sockets",
        "workspace_fill_many_files", "write_outside",
    ],
)  # fmt: skip
async def test_what_nobody_holds_back_is_found(name):
    """Where there is no sandbox at all, the same programs get through."""
    async with make_provider("none") as provider:
        result = await run_check(CHECKS[name], Bench(provider=provider, factory="none"), {})
    assert not result.finding.holds, result.finding.evidence
    assert not result.as_expected


@pytest.mark.parametrize("name", sorted(CHECKS.keys() - {"commands_100_at_once"}))
async def test_no_check_holds_where_nothing_runs(name):
    """A fake without a kernel, a shell or Python passes none of them by saying nothing; all it has is ``echo``."""
    async with InMemoryProvider() as provider:
        result = await run_check(CHECKS[name], Bench(provider=provider, factory="no_such_module:provider"), {})
    assert not result.finding.holds, result.finding.evidence
    assert result.finding.evidence


async def test_sandbox_that_does_not_start_is_a_finding():
    class Broken(InMemoryProvider):
        async def lease(self, spec, deadline):
            raise SandboxFault("no sandbox today")

    async with Broken() as provider:
        result = await run_check(CHECKS["fork_bomb"], Bench(provider=provider, factory="x:y"), provider.identity())
    assert (result.finding.holds, result.as_expected) == (False, False)
    assert "no sandbox today" in result.finding.evidence


# The table, and what the back-ends say.


@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_is_excused_in_kinds_that_hold(kind):
    """Every check is expected to hold; but where no control group can be made, memory is limited by process only."""
    async with KINDS[kind]() as provider:
        identity = provider.identity()
    excused = {name for name in CHECKS if expectation(name, identity) != HOLDS}
    assert excused == (set(TOTAL_MEMORY.fails) if find_cgroups().missing else set())


@pytest.mark.parametrize("kind", ALL)
async def test_table_and_identity_agree(kind):
    async with ALL[kind]() as provider:
        assert contradictions(provider.identity()) == []


def test_every_kind_has_a_row_and_every_weakness_a_check():
    assert set(BACKENDS) == set(PROVIDERS)
    assert {name for weakness in WEAKNESSES for name in (*weakness.fails, *weakness.depends)} <= set(CHECKS)
    assert all(weakness.fails or weakness.depends for weakness in WEAKNESSES)


def test_contradictions_are_seen():
    """A weakness nobody knows of, one that is not said, and one that is another kind's."""
    assert "no check is known for: it leaks" in contradictions({"kind": "bwrap", "weak": "it leaks"})[0]
    assert "does not say: nothing is confined" in contradictions({"kind": "none", "weak": ""})[0]
    assert contradictions({"kind": "bwrap", "weak": "nothing is confined: at all"})
    assert contradictions({"kind": "mine", "weak": "nothing is confined: at all"}) == []
    assert contradictions({"kind": "mine", "weak": "nothing"}) == []
    unlimited = Cgroups(missing="version 2: none is handed down; version 1: Permission denied").unlimited()
    assert contradictions({"kind": "bwrap", "weak": unlimited}) == []
    assert contradictions({"kind": "mine"})


def test_what_is_said_decides_what_is_expected():
    weak = {"weak": "nothing is confined: at all"}
    assert expectation("net_egress", weak).what is Expected.FAILS
    assert expectation("tiocsti", weak).what is Expected.DEPENDS
    assert expectation("fork_bomb", weak) == HOLDS
    assert expectation("fork_bomb", {}, ["fork_bomb"]).what is Expected.FAILS
    for holds in (True, False):
        assert expectation("fork_bomb", weak).met(holds=holds) == holds
        assert expectation("net_egress", weak).met(holds=holds) != holds
        assert expectation("tiocsti", weak).met(holds=holds)


def test_names_of_providers():
    with pytest.raises(UnknownNameError, match="bwrap"):
        make_provider("bwrp")
    with pytest.raises(ConfigError, match="No module named"):
        make_provider("no_such_module:provider")
    with pytest.raises(ConfigError, match="gives a dict"):
        make_provider("builtins:dict")


# What is printed, and kept.


async def test_report_names_what_is_not_as_expected():
    async with InMemoryProvider() as provider:
        bench = Bench(provider=provider, factory="x:y")
        results = [await run_check(CHECKS[name], bench, {}) for name in ("fork_bomb", "commands_100_at_once")]
    tried = Tried(identity={"kind": "mine", "version": "1", "weak": ""}, results=results)
    assert [each.check.name for each in tried.unexpected] == ["fork_bomb"]
    assert line(results[0]).startswith("!! fork_bomb")
    assert summary(tried) == "mine: 2 checks, 1 hold; not as expected: fork_bomb"
    assert "| **no**, not as expected |" in page([tried])


def test_page_in_the_docs_is_about_these_checks():
    """Its table has each of them, in order, with what it asks for, on every kind, and all was as expected."""
    text = (ROOT / "docs" / "conformance.md").read_text()
    rows = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| `")]
    assert [(row[0].strip("`"), row[1]) for row in rows] == [(name, check.expected) for name, check in CHECKS.items()]
    assert {len(row) for row in rows} == {2 + len(PROVIDERS)}
    assert "not as expected" not in text


# Of the clock, which a check cannot move.


def test_only_the_monotonic_clock_decides_in_a_sandbox():
    """Nor does the supervisor, or the harness's deadline, ever ask for the time of day."""
    package = ROOT / "agentenv"
    sources = [*(package / "sandboxes" / "supervisor").glob("*.py"), package / "core" / "deadline.py"]
    asked = {
        f"{path.name}: {node.attr}"
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"time", "time_ns", "now", "utcnow", "today"}
        and isinstance(node.value, ast.Name) and node.value.id in {"time", "datetime", "date"}
    }  # fmt: skip
    assert len(sources) > 10
    assert asked == set()
