"""``agentenv doctor --conformance``: the suite on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from agentenv.sandboxes.conformance.catalogue import CHECKS

from tests.cli.kit import Cli

OWN = """
from agentenv.sandboxes.namespaces import NamespacesProvider

class Leaking(NamespacesProvider):
    def identity(self):
        return {**super().identity(), "kind": "leaking", "weak": WEAK}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module with a provider, in the folder the command is run in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_sandbox", raising=False)
    return tmp_path / "own_sandbox.py"


def test_what_is_as_expected_is_success(cli: Cli) -> None:
    said = cli("doctor", "--conformance", "bwrap", "--check", "etc_shadow", "--check", "weaknesses_said")
    assert said.code == 0, said.err
    assert said.out.startswith("bwrap: bubblewrap")
    assert [line.split()[0] for line in said.out.splitlines()[2:-1]] == ["etc_shadow", "weaknesses_said"]
    assert said.out.endswith("bwrap: 2 checks, 2 hold; all as expected\n")


def test_providers_of_ones_own(cli: Cli, own: Path) -> None:
    """By the name of a module in this folder; also in the harnesses that checks start."""
    own.write_text(OWN.replace("WEAK", "'nothing'"))
    name = "own_sandbox:Leaking"
    said = cli("doctor", "--conformance", name, "--check", "host_env_secret", "--check", "weaknesses_said")
    assert said.code == 0, said.out + said.err


def test_claims_that_are_not_so_are_failures(cli: Cli, own: Path) -> None:
    """A sandbox that says it is weaker than it is, or is weak in a way no check knows; and a check known to fail."""
    own.write_text(OWN.replace("WEAK", "'nothing is confined; it leaks'"))
    said = cli(
        "doctor", "--conformance", "own_sandbox:Leaking", "--check", "net_egress", "--check", "weaknesses_said",
        "--check", "etc_shadow", "--known", "etc_shadow",
    )  # fmt: skip
    assert said.code == 1
    assert said.out.endswith("leaking: 3 checks, 2 hold; not as expected: etc_shadow, net_egress, weaknesses_said\n")


def test_page_for_the_docs(cli: Cli) -> None:
    said = cli("doctor", "--conformance", "bwrap", "--conformance", "namespaces", "--check", "etc_shadow", "--markdown")
    assert said.code == 0
    assert said.out.startswith("# Conformance of the sandboxes\n")
    assert f"| `etc_shadow` | {CHECKS['etc_shadow'].expected} | holds | holds |" in said.out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--conformance", "bwrp"], "Did you mean 'bwrap'"),
        (["--conformance", "bwrap", "--check", "etc_shado"], "Did you mean 'etc_shadow'"),
        (["--conformance", "bwrap", "--known", "nonsense"], "There is no check 'nonsense'"),
        (["--conformance", "no_such_module:x"], "No module named"),
        (["--markdown"], "--conformance"),
    ],
)
def test_what_cannot_be_run_is_said(cli: Cli, arguments: list[str], word: str) -> None:
    said = cli("doctor", *arguments)
    assert said.code == 2
    assert word in said.err


def test_sandbox_that_does_not_work_here(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/socket")
    said = cli("doctor", "--conformance", "docker")
    assert said.code == 3
    assert "Sandbox 'docker' does not work here" in said.err
