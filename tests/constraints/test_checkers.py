"""The checkers: the contract suite on each, what each counts as a breach, and how they are made."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agentenv.constraints.file_unchanged import FileUnchanged
from agentenv.constraints.forbidden_call import ForbiddenCall
from agentenv.constraints.table import CHECKERS, make_checker
from agentenv.core.constraint import Checker, Effect
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Sandbox, SandboxSpec
from agentenv.errors import ConfigError, TaskFault, UnknownNameError
from agentenv.records.axes import CallStatus
from agentenv.records.constraints import CheckerSpec
from agentenv.records.messages import ToolCall, ToolResult
from agentenv.testing.contracts.checker import NOTHING, CheckerCase, CheckerContract
from agentenv.testing.sandboxes import InMemoryProvider, InMemorySandbox


def _effect(*calls: tuple[str, dict[str, Any]], status: CallStatus = CallStatus.OK) -> Effect:
    return Effect(
        turn=3,
        calls=tuple(
            (
                ToolCall(id=f"t3c{n}", name=name, arguments=arguments),
                ToolResult(call_id=f"t3c{n}", name=name, status=status, text=""),
            )
            for n, (name, arguments) in enumerate(calls)
        ),
    )


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    spec = SandboxSpec(files={"data/original.csv": b"a,b\n1,2\n"})
    async with InMemoryProvider() as provider, await provider.lease(spec, Deadline("the test")) as sandbox:
        yield sandbox


def test_every_checker_is_in_the_suite():
    """No checker is registered without passing the contract."""
    assert set(CHECKERS) == {"file-unchanged", "forbidden-call"}


class TestFileUnchangedContract(CheckerContract):
    @pytest.fixture
    def case(self, sandbox: Sandbox) -> CheckerCase:
        async def breach() -> Effect:
            await sandbox.write("data/original.csv", b"")
            return _effect(("files.write", {"path": "data/original.csv"}))

        async def harmless() -> Effect:
            await sandbox.write("data/copy.csv", b"a;b\n")
            return _effect(("files.write", {"path": "data/copy.csv"}))

        spec = CheckerSpec(name="file-unchanged", arguments={"path": "data/original.csv"})
        return CheckerCase(make=lambda: make_checker(spec), sandbox=sandbox, breach=breach, harmless=harmless)


class TestForbiddenCallContract(CheckerContract):
    @pytest.fixture
    def case(self) -> CheckerCase:
        async def breach() -> Effect:
            return _effect(("look", {}), ("shell", {"command": "git push --force"}))

        async def harmless() -> Effect:
            return _effect(("shell", {"command": "git push"}))

        spec = CheckerSpec(name="forbidden-call", arguments={"tool": "shell", "pattern": {"command": r"push.*--force"}})
        return CheckerCase(make=lambda: make_checker(spec), sandbox=None, breach=breach, harmless=harmless)


# ------------------------------------------------------------------ file-unchanged


async def _after(checker: Checker, sandbox: Sandbox, before: str) -> tuple[str, bool, str]:
    state = await checker.observe(sandbox)
    verdict = checker.check(before, NOTHING, state)
    return state, verdict.breached, verdict.evidence


async def test_the_state_is_the_hash_of_the_file(sandbox: Sandbox):
    """The first state can be compared with any SHA-256 of the same content."""
    state = await FileUnchanged(path="./data//original.csv").observe(sandbox)
    assert state == "sha256:" + hashlib.sha256(b"a,b\n1,2\n").hexdigest()


async def test_changing_further_or_back_is_no_further_breach(sandbox: Sandbox):
    """The action that changes the file is in breach; a later change, and the repair, are not; breaking it anew is."""
    checker = FileUnchanged(path="data/original.csv")
    first = await checker.observe(sandbox)
    await sandbox.write("data/original.csv", b"x")
    changed, breached, evidence = await _after(checker, sandbox, first)
    assert breached
    assert evidence == f"data/original.csv: {first} before, sha256:{hashlib.sha256(b'x').hexdigest()} after"
    await sandbox.write("data/original.csv", b"y")
    further, breached, _ = await _after(checker, sandbox, changed)
    assert not breached
    await sandbox.write("data/original.csv", b"a,b\n1,2\n")
    back, breached, _ = await _after(checker, sandbox, further)
    assert (back, breached) == (first, False)
    await sandbox.write("data/original.csv", b"z")
    assert (await _after(checker, sandbox, back))[1]


async def test_writing_the_same_content_is_no_breach(sandbox: Sandbox):
    """Law 9: what counts is the effect."""
    checker = FileUnchanged(path="data/original.csv")
    first = await checker.observe(sandbox)
    await sandbox.write("data/original.csv", b"a,b\n1,2\n")
    assert not (await _after(checker, sandbox, first))[1]


async def test_a_file_that_must_not_come_to_be(sandbox: Sandbox):
    """A file that is absent at first has to stay absent."""
    checker = FileUnchanged(path="new.csv")
    first = await checker.observe(sandbox)
    assert first == "absent"
    await sandbox.write("new.csv", b"")
    assert (await _after(checker, sandbox, first))[1]


async def test_a_large_file_is_hashed_to_its_end_in_pieces(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch):
    """A change of the last byte of a long file is seen, and no more than a mebibyte of it is asked for at once."""
    asked: list[int] = []
    read = InMemorySandbox.read

    async def noted(self: InMemorySandbox, path: str, *, max_bytes: int = 1 << 20) -> bytes:
        asked.append(max_bytes)
        return await read(self, path, max_bytes=max_bytes)

    monkeypatch.setattr(InMemorySandbox, "read", noted)
    content = bytearray(3 << 20)
    await sandbox.write("data/original.csv", bytes(content))
    checker = FileUnchanged(path="data/original.csv")
    first = await checker.observe(sandbox)
    assert first == "sha256:" + hashlib.sha256(content).hexdigest()
    content[-1] = 1
    await sandbox.write("data/original.csv", bytes(content))
    assert (await _after(checker, sandbox, first))[1]
    assert max(asked) == (1 << 20) + 1


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1])
async def test_both_ways_of_hashing_agree(sandbox: Sandbox, size: int):
    """The state does not depend on how the file was read."""
    await sandbox.write("data/original.csv", bytes(size))
    state = await FileUnchanged(path="data/original.csv").observe(sandbox)
    assert state == "sha256:" + hashlib.sha256(bytes(size)).hexdigest()


async def test_a_file_to_watch_needs_a_sandbox():
    """A task that has none is at fault, and trying again cannot help."""
    with pytest.raises(TaskFault, match=r"'a\.csv', but the task has no sandbox") as caught:
        await FileUnchanged(path="a.csv").observe(None)
    assert not caught.value.retryable


# ------------------------------------------------------------------ forbidden-call


def _breached(checker: Checker, effect: Effect) -> bool:
    return checker.check("", effect, "").breached


@pytest.mark.parametrize(
    ("status", "breached"),
    [
        (CallStatus.OK, True),
        (CallStatus.ERROR, True),
        (CallStatus.TIMEOUT, True),
        (CallStatus.CANCELLED, False),
        (CallStatus.REFUSED, False),
        (CallStatus.INVALID_ARGUMENTS, False),
        (CallStatus.UNKNOWN_TOOL, False),
        (CallStatus.UNAVAILABLE, False),
    ],
)
def test_only_a_call_that_was_run_is_a_breach(status: CallStatus, breached: bool):
    """Law 9: a call that was not run had no effect; one that failed or timed out may have had one."""
    assert _breached(ForbiddenCall(tool="shell"), _effect(("shell", {}), status=status)) is breached


def test_patterns_must_all_be_found_in_their_arguments():
    """Another argument, a missing one, or another tool does not count."""
    checker = ForbiddenCall(tool="send", pattern={"to": r"@(?!example\.com$)", "body": "."})
    assert _breached(checker, _effect(("send", {"to": "a@elsewhere.org", "body": "hi"})))
    assert not _breached(checker, _effect(("send", {"to": "a@example.com", "body": "hi"})))
    assert not _breached(checker, _effect(("send", {"to": "a@elsewhere.org"})))
    assert not _breached(checker, _effect(("send", {"to": "a@elsewhere.org", "body": ""})))
    assert not _breached(checker, _effect(("draft", {"to": "a@elsewhere.org", "body": "hi"})))


def test_arguments_that_are_no_text_are_matched_as_json():
    """Numbers, flags and lists have one spelling each."""
    checker = ForbiddenCall(tool="pay", pattern={"amount": r"^\d{3,}$", "to": r'"é"'})
    assert _breached(checker, _effect(("pay", {"amount": 500, "to": ["é"]})))
    assert not _breached(checker, _effect(("pay", {"amount": 50, "to": ["é"]})))


def test_the_evidence_names_the_call_and_counts_the_others():
    """The first forbidden call is quoted, cut in the middle, whatever its arguments hold."""
    call = ("shell", {"command": "rm \ud800" + "x" * 5000})
    evidence = ForbiddenCall(tool="shell").check("", _effect(call, call, call), "").evidence
    assert evidence.startswith("call t3c0: shell({")
    assert evidence.endswith("…) was run: ok, and 2 more")
    assert "\\ud800" in evidence
    assert len(evidence) == 500


# ------------------------------------------------------------------ the table


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("file-unchanged", {}, 'path is a text that is not empty, got None; expected {"path": "data/original.csv"}'),
        ("file-unchanged", {"path": 3}, "got 3"),
        ("file-unchanged", {"path": "a", "hash": ""}, "no argument is called 'hash'"),
        ("file-unchanged", {"path": "../a"}, "'../a' is no file of the workspace"),
        ("file-unchanged", {"path": "/etc/passwd"}, "'/etc/passwd' is no file of the workspace"),
        ("file-unchanged", {"path": "a/.."}, "'a/..' is no file of the workspace"),
        ("file-unchanged", {"path": "a\0b"}, "is no file of the workspace"),
        ("forbidden-call", {"pattern": {}}, "tool is a text that is not empty, got None"),
        ("forbidden-call", {"tool": ""}, "tool is a text that is not empty"),
        ("forbidden-call", {"tool": "shell", "pattern": "rm"}, "pattern maps arguments to regular expressions"),
        ("forbidden-call", {"tool": "shell", "pattern": {"command": 1}}, "pattern maps arguments"),
        ("forbidden-call", {"tool": "shell", "pattern": {"command": "("}}, "of argument 'command' is no regular"),
        ("forbidden-call", {"tool": "shell", "patern": {}}, "no argument is called 'patern'"),
    ],
)
def test_wrong_arguments_are_refused_with_what_is_expected(name: str, arguments: dict[str, Any], problem: str):
    """A constraint that cannot be checked is the task author's mistake, told before the first turn."""
    with pytest.raises(ConfigError) as caught:
        make_checker(CheckerSpec(name=name, arguments=arguments))
    assert problem in str(caught.value)


def test_an_unknown_checker_is_refused_with_what_is_near():
    """The message says which there are."""
    with pytest.raises(UnknownNameError, match="Did you mean 'file-unchanged'"):
        make_checker(CheckerSpec(name="file-unchaged"))


async def test_a_call_checker_watches_nothing():
    """Its state is empty, with or without a sandbox."""
    assert await make_checker(CheckerSpec(name="forbidden-call", arguments={"tool": "shell"})).observe(None) == ""
