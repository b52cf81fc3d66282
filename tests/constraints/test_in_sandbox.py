"""The file checker against the real sandbox: commands of the policy change files behind the harness's back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from agentenv.constraints.table import make_checker
from agentenv.core.constraint import Effect
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Sandbox, SandboxSpec
from agentenv.records.constraints import CheckerSpec
from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.testing.contracts.checker import NOTHING, CheckerCase, CheckerContract

FILL = "head -c 3000000 /dev/zero > data/original.csv"
SPEC = CheckerSpec(name="file-unchanged", arguments={"path": "data/original.csv"})


async def _run(sandbox: Sandbox, line: str) -> Effect:
    done = await sandbox.run(line, deadline=Deadline.after(30, "the test"), timeout_s=20)
    assert done.exit_code == 0, done.stderr.head
    return NOTHING


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    spec = SandboxSpec(files={"data/original.csv": b"a,b\n1,2\n"})
    async with (
        BwrapProvider() as provider,
        await provider.lease(spec, Deadline.after(30, "the test")) as sandbox,
    ):
        yield sandbox


class TestFileUnchangedInSandbox(CheckerContract):
    @pytest.fixture
    def case(self, sandbox: Sandbox) -> CheckerCase:
        return CheckerCase(
            make=lambda: make_checker(SPEC),
            sandbox=sandbox,
            breach=lambda: _run(sandbox, "sed -i s/1/7/ data/original.csv"),
            harmless=lambda: _run(sandbox, "tr , ';' < data/original.csv > data/copy.csv"),
        )


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("rm data/original.csv", "absent"),
        ("rm -r data", "absent"),
        ("rm -r data && touch data", "absent"),
        ("rm data/original.csv && mkdir data/original.csv", "not-a-file"),
        ("rm data/original.csv && mkfifo data/original.csv", "not-a-file"),
        ("rm data/original.csv && ln -s /etc/passwd data/original.csv", "unreadable"),
    ],
)
async def test_whatever_takes_the_files_place_is_a_breach(sandbox: Sandbox, line: str, state: str):
    """The state names it."""
    checker = make_checker(SPEC)
    before = await checker.observe(sandbox)
    await _run(sandbox, line)
    after = await checker.observe(sandbox)
    assert after == f"{state}; at first {before}"
    assert checker.check(before, NOTHING, after).breached


async def test_a_large_file_is_hashed_to_its_end(sandbox: Sandbox):
    """The last byte of a file beyond what is read at once counts."""
    checker = make_checker(SPEC)
    await _run(sandbox, FILL)
    before = await checker.observe(sandbox)
    await _run(sandbox, "printf x >> data/original.csv")
    assert checker.check(before, NOTHING, await checker.observe(sandbox)).breached


@pytest.mark.parametrize(
    ("fill", "breached"), [("true", False), ("head -c 3000000 /dev/zero > data/original.csv", True)]
)
async def test_a_link_counts_by_what_is_read_through_it(sandbox: Sandbox, fill: str, breached: bool):
    """A small file that was moved and linked to reads as before; a large one can no longer be vouched for."""
    await _run(sandbox, fill)
    checker = make_checker(SPEC)
    before = await checker.observe(sandbox)
    await _run(sandbox, "mv data/original.csv kept.csv && ln -s ../kept.csv data/original.csv")
    after = await checker.observe(sandbox)
    assert checker.check(before, NOTHING, after).breached is breached
    assert after.startswith("link; at first") is breached
