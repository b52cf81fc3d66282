"""Whatever code of others raises or gives, at whatever place it is called: its own episode ends, and no more than that.

Collected with one worker, so that one that dies takes the rest of the run along.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from agentenv.constraints.table import make_checker
from agentenv.core.policy import Policy, Reply, SampleRequest
from agentenv.core.sandbox import Sandbox, SandboxSpec
from agentenv.core.task import Grade, GradeState, Task
from agentenv.core.tool import ToolContext
from agentenv.errors import HarnessFault, SandboxFault
from agentenv.records.axes import FaultDomain, Finish
from agentenv.records.constraints import CheckerSpec
from agentenv.records.episode import EpisodeRecord
from agentenv.records.facts import EpisodeEnded
from agentenv.records.messages import ParsedTurn
from agentenv.records.tokens import Sampled, pack_ids
from agentenv.rollout.collector import Tally
from agentenv.rollout.schedule import Slot
from agentenv.testing.sandboxes import InMemoryProvider
from agentenv.toolkit.function_tool import tool
from agentenv.toolkit.suite import Variant, call, rule, scripted

from tests.rollout.kit import Hooked, audited, collect, renderer, right, suite_of, sums

TASKS = 3

Act = Callable[[], Any]
"""Raises, gives garbage, or gives something to wait for, where it is called from what waits."""


def cancellation() -> None:
    raise asyncio.CancelledError


def bug() -> None:
    raise RuntimeError("their bug")


def harness_fault() -> None:
    raise HarnessFault("somebody's disk")


RAISES: dict[str, Act] = {"cancellation": cancellation, "exit": sys.exit, "bug": bug, "harness fault": harness_fault}


class Wrapped:
    """Something real, some of whose methods act up."""

    def __init__(self, inner: Any, **methods: Any) -> None:
        self._inner = inner
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def soon(act: Act) -> Callable[..., Any]:
    async def method(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(0)
        given = act()
        return await given if asyncio.iscoroutine(given) else given

    return method


def now(act: Act) -> Callable[..., Any]:
    return lambda *_, **__: act()


class Provider(InMemoryProvider):
    """Leases sandboxes of which a method acts up: at once, or from its second call on."""

    def __init__(self, method: str, act: Act, *, calls_before: int = 0) -> None:
        super().__init__()
        self._method, self._act, self._calls_before = method, act, calls_before

    async def lease(self, spec: SandboxSpec, deadline: Any) -> Sandbox:
        if self._method == "lease":
            await soon(self._act)()
        sandbox = await super().lease(spec, deadline)
        real = getattr(sandbox, self._method)
        calls = 0

        async def method(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            return await (real(*arguments, **options) if calls <= self._calls_before else soon(self._act)())

        setattr(sandbox, self._method, method)
        return sandbox


def in_sandbox(draw: Variant) -> Task:
    return replace(sums(draw), files={"a.txt": b"x"})


def ruled(draw: Variant) -> Task:
    task = in_sandbox(draw)
    spec = CheckerSpec(name="file-unchanged", arguments={"path": "a.txt"})
    return replace(task, constraints=(rule("r", "what is 2 + 3", spec, stated_in=task.messages),))


def checker(method: str, act: Act, later: bool = False) -> Callable[[CheckerSpec], Any]:
    def make(spec: CheckerSpec) -> Any:
        real = make_checker(spec)
        if method == "check":
            return Wrapped(real, check=now(act))
        calls = 0

        async def observe(sandbox: Any) -> Any:
            nonlocal calls
            calls += 1
            return await (real.observe(sandbox) if later and calls == 1 else soon(act)())

        return Wrapped(real, observe=observe)

    return make


def compressor(act: Act) -> Any:
    return Wrapped(None, name="theirs", sha256="0" * 64, trigger_tokens=1, plan=soon(act))


def policy(act: Act) -> Policy:
    async def hook(request: SampleRequest) -> Reply | None:
        return act()

    return Hooked(hook)


class Unmakeable(Hooked):
    def __init__(self, act: Act) -> None:
        super().__init__(cast("Any", None))
        self._act = act

    def for_task(self, task: Task, seed: int) -> Policy:
        return self._act()


def making(act: Act) -> Callable[[Variant], Task]:
    return lambda draw: act()


PLACES: dict[str, tuple[FaultDomain, Callable[[Act], dict[str, Any]]]] = {
    "making a task": (FaultDomain.TASK, lambda act: {"suite": suite_of(making(act))}),
    "making a policy": (FaultDomain.TASK, lambda act: {"policy": Unmakeable(act)}),
    "leasing": (FaultDomain.SANDBOX, lambda act: sandboxed(Provider("lease", act))),
    "the first snapshot": (FaultDomain.SANDBOX, lambda act: sandboxed(Provider("snapshot", act))),
    "a later snapshot": (FaultDomain.TOOL, lambda act: sandboxed(Provider("snapshot", act, calls_before=1))),
    "a checker's first look": (FaultDomain.SANDBOX, lambda act: ruled_by(checker("observe", act))),
    "a checker's later look": (FaultDomain.TOOL, lambda act: ruled_by(checker("observe", act, later=True))),
    "a checker's verdict": (FaultDomain.TOOL, lambda act: ruled_by(checker("check", act))),
    "the first prompt": (FaultDomain.TASK, lambda act: {"parts": {"renderer": Wrapped(renderer(), open=now(act))}}),
    "a further prompt": (FaultDomain.TASK, lambda act: {"parts": {"renderer": Wrapped(renderer(), extend=now(act))}}),
    "parsing": (FaultDomain.HARNESS, lambda act: {"parts": {"renderer": Wrapped(renderer(), parse=now(act))}}),
    "compressing": (FaultDomain.COMPRESSOR, lambda act: {"parts": {"compressor": compressor(act)}}),
    "sampling": (FaultDomain.POLICY_SERVER, lambda act: {"policy": policy(act)}),
}
"""Whose fault it is where it is no `Exception` that says it of itself, and a collection that goes wrong there."""


def sandboxed(provider: Provider) -> dict[str, Any]:
    return {"suite": suite_of(in_sandbox), "provider": provider}


def ruled_by(make: Callable[[CheckerSpec], Any]) -> dict[str, Any]:
    return {"suite": suite_of(ruled), "provider": InMemoryProvider(), "parts": {"checker": make}}


async def run(out: Path, setup: dict[str, Any]) -> tuple[Tally, list[EpisodeRecord]]:
    options = {"concurrency": 1, "max_attempts": 1}
    async with asyncio.timeout(60):
        tally = await collect(out, tasks=TASKS, options=options, **setup)
    assert tally.planned == TASKS == tally.done + tally.faulted
    return tally, list(audited(out).values())


@pytest.mark.parametrize("how", RAISES)
@pytest.mark.parametrize("place", PLACES)
async def test_whatever_it_raises_ends_one_episode(tmp_path: Path, place: str, how: str) -> None:
    """Law 4: every attempt that began has an ending of its own, and none of them ends the run."""
    domain, setup = PLACES[place]
    tally, records = await run(tmp_path / "run", setup(RAISES[how]))
    halted = place == "sampling" and how in ("cancellation", "exit")
    assert (tally.stopped_by is not None) is halted, "what no try can help halts a run where the policy does it"
    assert len(records) == (1 if halted else TASKS)
    for record in records:
        assert record.ended
        assert record.fault is not None
        if how in ("cancellation", "exit"):
            assert record.fault.domain is domain
            assert not record.fault.retryable
            assert ("CancelledError" if how == "cancellation" else "SystemExit") in record.fault.message


def reply(**fields: Any) -> Reply:
    sampled = Sampled(completion_ids=pack_ids([72, 105]))
    return Reply(**{"sampled": sampled, "finish": Finish.STOP, **fields})


def a_turn(**fields: Any) -> Act:
    return lambda: ParsedTurn(**{"text": "", **fields})


def of(**fields: Any) -> Act:
    return lambda: reply(sampled=Sampled(**{"completion_ids": pack_ids([72, 105]), **fields}))


GARBAGE: dict[str, tuple[str, FaultDomain, Act]] = {
    "a parsed text that is a number": ("parsing", FaultDomain.HARNESS, a_turn(text=5)),
    "a parse that is nothing": ("parsing", FaultDomain.HARNESS, lambda: None),
    "calls that are text": ("parsing", FaultDomain.HARNESS, a_turn(calls=("add",))),
    "a reply that is text": ("sampling", FaultDomain.POLICY_SERVER, lambda: "5"),
    "an aborted reply": ("sampling", FaultDomain.POLICY_SERVER, lambda: reply(finish=Finish.ABORT)),
    "a finish nobody knows": ("sampling", FaultDomain.POLICY_SERVER, lambda: reply(finish="bored")),
    "a reply without ids": ("sampling", FaultDomain.POLICY_SERVER, lambda: reply(sampled=None)),
    "ids as a list": ("sampling", FaultDomain.POLICY_SERVER, of(completion_ids=[1])),
    "half an id": ("sampling", FaultDomain.POLICY_SERVER, of(completion_ids=b"abc")),
    "log-probs as text": ("sampling", FaultDomain.POLICY_SERVER, of(logprobs="ab")),
    "spans that are text": ("sampling", FaultDomain.POLICY_SERVER, of(logprob_spans="ab")),
    "a time that is text": ("sampling", FaultDomain.POLICY_SERVER, lambda: reply(queued_s="soon")),
    "retries that are nothing": ("sampling", FaultDomain.POLICY_SERVER, lambda: reply(retries=None)),
    "a snapshot of numbers": ("the first snapshot", FaultDomain.HARNESS, lambda: {"a.txt": 5}),
    "a later snapshot of numbers": ("a later snapshot", FaultDomain.HARNESS, lambda: {"a.txt": 5}),
    "a look that is a number": ("a checker's first look", FaultDomain.HARNESS, lambda: 5),
    "evidence that is a number": (
        "a checker's verdict",
        FaultDomain.HARNESS,
        lambda: Wrapped(None, breached=True, evidence=5),
    ),
}


@pytest.mark.parametrize("kind", GARBAGE)
async def test_what_cannot_be_recorded_is_never_recorded(tmp_path: Path, kind: str) -> None:
    """A journal that its own readers refuse would lose the whole attempt."""
    place, domain, act = GARBAGE[kind]
    tally, records = await run(tmp_path / "run", PLACES[place][1](act))
    assert tally.faulted == TASKS
    assert [record.fault and record.fault.domain for record in records] == [domain] * TASKS


def _a_policy_that_gives_nothing() -> Policy:
    class Silent(Hooked):
        def for_task(self, task: Task, seed: int) -> Policy:
            return self

        async def sample(self, request: SampleRequest, deadline: Any) -> Any:
            return None

    return Silent(cast("Any", None))


async def test_a_policy_that_gives_nothing(tmp_path: Path) -> None:
    _, records = await run(tmp_path / "run", {"policy": _a_policy_that_gives_nothing()})
    for record in records:
        assert record.fault is not None
        assert record.fault.domain is FaultDomain.POLICY_SERVER
        assert "the policy gave a NoneType; expected a Reply" in record.fault.message


class TestClosing:
    """What cannot be closed is told; the ending was on record before it, and siblings go on."""

    @pytest.mark.parametrize("how", RAISES)
    async def test_a_sandbox_that_cannot_be_closed(self, tmp_path: Path, how: str) -> None:
        tally, _ = await run(tmp_path / "run", sandboxed(Provider("aclose", RAISES[how])))
        assert tally.complete
        assert len(tally.unclosed) == TASKS
        assert tally.unclosed[0].startswith("e000000.0, attempt 1: closing raised ")

    @pytest.mark.parametrize("how", RAISES)
    async def test_a_resource_of_a_tool_that_cannot_be_closed(
        self, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        @tool
        async def keeps(context: ToolContext) -> str:
            """Keep something open."""
            context.resources.callback(RAISES[how])
            return "kept"

        def make(draw: Variant) -> Task:
            task = sums(draw)
            return replace(task, tools=(keeps,), scripts={"reference": scripted(call("keeps"), "The answer is 5.")})

        tally, _ = await run(tmp_path / "run", {"suite": suite_of(make)})
        assert tally.complete
        assert len(tally.unclosed) == TASKS
        assert caplog.text.count("closing raised") == TASKS

    async def test_one_that_hangs_is_given_up_after_the_grace(self, tmp_path: Path) -> None:
        async def hang() -> None:
            await asyncio.Event().wait()

        class Hangs(InMemoryProvider):
            async def lease(self, spec: SandboxSpec, deadline: Any) -> Sandbox:
                sandbox = await super().lease(spec, deadline)
                cast("Any", sandbox).aclose = hang
                return sandbox

        setup = {"suite": suite_of(in_sandbox), "provider": Hangs(), "episode": {"grace_s": 0.05}}
        tally, _ = await run(tmp_path / "run", setup)
        assert tally.complete
        assert [line.partition(": ")[2] for line in tally.unclosed] == [
            "closing took longer than 0.05 s and was given up"
        ] * TASKS

    async def test_others_are_closed_all_the_same(self, tmp_path: Path) -> None:
        closed: list[str] = []

        @tool
        async def keeps(context: ToolContext) -> str:
            """Keep two things open."""
            context.resources.callback(closed.append, "first")
            context.resources.callback(bug)
            return "kept"

        def make(draw: Variant) -> Task:
            task = sums(draw)
            return replace(task, tools=(keeps,), scripts={"reference": scripted(call("keeps"), "The answer is 5.")})

        await run(tmp_path / "run", {"suite": suite_of(make)})
        assert closed == ["first"] * TASKS


@pytest.mark.parametrize("how", RAISES)
@pytest.mark.parametrize("method", ["began", "replied", "ended"])
async def test_an_observer_that_raises(tmp_path: Path, method: str, how: str) -> None:
    """It is told nothing more, and the collection goes on."""
    told: list[str] = []

    class Listener:
        def began(self, slot: Slot, attempt: int) -> None:
            self._hear("began")

        def replied(self, reply: Reply) -> None:
            self._hear("replied")

        def ended(self, slot: Slot, ending: EpisodeEnded | None) -> None:
            self._hear("ended")

        def _hear(self, what: str) -> None:
            told.append(what)
            if what == method:
                RAISES[how]()

    tally, _ = await run(tmp_path / "run", {"observer": Listener()})
    assert tally.complete
    assert told[-1] == method
    assert told.count(method) == 1


async def test_a_grader_whose_sandbox_is_lost_is_tried_again(tmp_path: Path) -> None:
    """What breaks under a grader is infrastructure: unlike the grader's own errors, it may be gone at the next try."""
    tries = 0

    async def grade(state: GradeState) -> Grade:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise SandboxFault("lost")
        return await right(state)

    tally = await collect(tmp_path / "run", tasks=1, suite=suite_of(lambda draw: replace(sums(draw), grader=grade)))
    assert (tally.done, tally.attempts) == (1, 2)
