"""Collections of small suites over real parts: the byte renderer, a real journal, a real sandbox if asked for."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentenv.compressors.table import parse_compressor
from agentenv.constraints.table import make_checker
from agentenv.core.deadline import Deadline
from agentenv.core.policy import Policy, PolicyIdentity, Reply, SampleRequest
from agentenv.core.sandbox import SandboxProvider
from agentenv.core.store import AttemptKey
from agentenv.core.task import Grade, GradeState, Suite, Task
from agentenv.engine.audit import audit
from agentenv.envs.plan import EpisodeOptions, EpisodeParts
from agentenv.policies.scripted import ScriptedPolicy
from agentenv.records.axes import BudgetKind, BudgetOwner
from agentenv.records.budgets import Budget
from agentenv.records.episode import EpisodeRecord
from agentenv.records.tokens import SamplingParams
from agentenv.rendering.loading import byte_renderer
from agentenv.rollout.collector import CollectOptions, Collector, Observer, Tally
from agentenv.rollout.schedule import progress_of, slots
from agentenv.storage.journal import Durability
from agentenv.storage.run_folder import RunFolder
from agentenv.toolkit.function_tool import tool
from agentenv.toolkit.suite import SeededSuite, Variant, call, exact_answer, messages, scripted

renderer = functools.cache(byte_renderer)
"""One renderer for all: finding out how its template behaves takes longer than a collection."""

MANIFEST = {"run": {"id": "test"}}


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@tool
async def hang() -> str:
    """Never return."""
    await asyncio.Event().wait()
    return "never"


@tool(timeout_s=0.05)
async def slow() -> str:
    """Never return, with a limit of its own."""
    await asyncio.Event().wait()
    return "never"


@tool
def broken() -> str:
    """Raise."""
    raise RuntimeError("the tool's own bug")


ADDING = scripted(call("add", a=2, b=3), "The answer is 5.")


def sums(draw: Variant) -> Task:
    """Make a task that adds, with players that get into every kind of trouble."""
    return Task(
        id=draw.id,
        messages=messages(f"Task {draw.seed}: what is 2 + 3?"),
        tools=(add, hang, slow, broken),
        grader=exact_answer(5),
        scripts={
            "reference": ADDING,
            "wrong": scripted("The answer is 6."),
            "hang": scripted(call("hang"), "The answer is 5."),
            "slow": scripted(call("slow"), "The answer is 5."),
            "broken": scripted(call("broken"), "The answer is 5."),
            "endless": scripted(call("add", a=2, b=3)),
        },
    )


def suite_of(make: Callable[[Variant], Task] = sums) -> SeededSuite:
    return SeededSuite("sums", 1000, make=make)


def changed(**changes: Any) -> SeededSuite:
    """The sums, each with some fields of its task changed."""
    return suite_of(lambda draw: replace(sums(draw), **changes))


def wall_clock(seconds: float, owner: BudgetOwner = BudgetOwner.COLLECTOR) -> Budget:
    return Budget(kind=BudgetKind.WALL_CLOCK, limit=seconds, owner=owner)


Hook = Callable[[SampleRequest], Awaitable[Reply | None]]
"""Told of every request; may raise, or answer in the script's place."""


class Hooked(Policy):
    """The scripted policy, with something that may happen before every reply."""

    def __init__(self, hook: Hook, script: str = "reference", inner: Policy | None = None) -> None:
        self._hook = hook
        self._inner = inner or ScriptedPolicy(renderer(), script=script)

    @property
    def identity(self) -> PolicyIdentity:
        return self._inner.identity

    async def start(self) -> PolicyIdentity:
        return await self._inner.start()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def for_task(self, task: Task, seed: int) -> Policy:
        return Hooked(self._hook, inner=self._inner.for_task(task, seed))

    async def sample(self, request: SampleRequest, deadline: Deadline) -> Reply:
        answer = await self._hook(request)
        return answer or await self._inner.sample(request, deadline)


def player(script: str = "reference") -> Policy:
    return ScriptedPolicy(renderer(), script=script)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One collection, before it is made."""

    suite: Suite = field(default_factory=suite_of)
    policy: Policy = field(default_factory=player)
    tasks: int = 4
    group_size: int = 1
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    """Fields of `CollectOptions`."""
    episode: dict[str, Any] = field(default_factory=dict)
    """Fields of `EpisodeOptions`."""
    compressor: str = "none"
    provider: SandboxProvider | None = None
    parts: dict[str, Any] = field(default_factory=dict)
    """Fields of `EpisodeParts`, in place of the usual ones."""
    observer: Observer | None = None
    max_bytes: int | None = None
    """Of the journal."""
    durability: Durability = "process"


@asynccontextmanager
async def opened(out: Path, setup: Setup) -> AsyncIterator[Callable[[], Awaitable[Tally]]]:
    """Open a collection; what is given collects."""
    door = RunFolder.resume if out.exists() else RunFolder.create
    with door(out, MANIFEST, durability=setup.durability) as folder:
        with folder.reader() as reader:
            before = progress_of(reader)
        async with setup.policy as policy, folder.journal(max_bytes=setup.max_bytes) as writer:
            options = {"retry_wait_s": 0.0, "concurrency": 4, **setup.options}
            collector = Collector(
                suite=setup.suite,
                policy=policy,
                parts=replace(
                    EpisodeParts(
                        renderer=renderer(),
                        identity=await policy.start(),
                        compressor=parse_compressor(setup.compressor),
                        checker=make_checker,
                        writer=writer,
                        blobs=folder.blobs,
                        provider=setup.provider,
                    ),
                    **setup.parts,
                ),
                episode_options=EpisodeOptions(
                    **{"sampling": SamplingParams(max_tokens=2048), "budgets": (wall_clock(60),), **setup.episode}
                ),
                options=CollectOptions(tasks=setup.tasks, group_size=setup.group_size, seed=setup.seed, **options),
                observer=setup.observer,
            )
            todo = slots(tasks=setup.tasks, group_size=setup.group_size, seed=setup.seed)
            yield lambda: collector.run(todo, before)


async def collect(out: Path, **setup: Any) -> Tally:
    async with opened(out, Setup(**setup)) as run:
        return await run()


def audited(out: Path) -> dict[AttemptKey, EpisodeRecord]:
    """Every attempt of a run, in order; none of them may break a law."""
    records: dict[AttemptKey, EpisodeRecord] = {}
    with RunFolder.open(out).reader() as reader:
        for key in reader.attempts():
            record, findings = audit(reader.facts(key))
            assert record is not None, findings
            assert findings == []
            records[key] = record
    return records


async def right(state: GradeState) -> Grade:
    """Grade as the sums do."""
    return await exact_answer(5)(state)
