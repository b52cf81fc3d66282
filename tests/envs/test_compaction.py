"""A compaction takes its time in threads: the loop, and with it every other episode, goes on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from array import array
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest
from agentenv.compressors.table import parse_compressor
from agentenv.core.compressor import CompressionView, Compressor
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.renderer import Renderer
from agentenv.engine.effects import Compress
from agentenv.envs.compaction import compact
from agentenv.errors import CompressorFault, ConfigError, Fault, SandboxFault
from agentenv.records.axes import CompactionOutcome
from agentenv.records.facts import Compacted
from agentenv.records.messages import Message, Role

NEVER = Deadline("no limit")
_PATIENCE_S = 30.0
"""Until a thread that the loop has forgotten says so, instead of waiting for the end of the test."""


class Windows:
    """Renders a token per character; what is done before it decides how long that takes."""

    def __init__(self, before: Any = lambda: None) -> None:
        self._before = before
        self.threads: list[threading.Thread] = []

    def open(self, messages: Sequence[Message], tools: Sequence[Any]) -> array[int]:
        self.threads.append(threading.current_thread())
        self._before()
        return array("i", range(sum(len(message.text) for message in messages)))


def history(n_turns: int = 20) -> tuple[Message, ...]:
    task = Message(id="m0", role=Role.USER, text="x" * 10, pinned=True)
    turns = (
        Message(id=f"m{n + 1}", role=(Role.ASSISTANT, Role.USER)[n % 2], text="y" * 10, turn=n // 2)
        for n in range(2 * n_turns)
    )
    return (task, *turns)


def effect(**changes: Any) -> Compress:
    window = history()
    fields: dict[str, Any] = {
        "id": "k0",
        "window": window,
        "tokens": sum(len(message.text) for message in window),
        "budget_tokens": 100,
        "trigger": "budget",
        "taken": frozenset(),
        "denied": None,
        "summary": None,
        "summary_turns": (),
    }
    return Compress(**{**fields, **changes})


async def compacted(
    renderer: Windows, *, compressor: Compressor | None = None, deadline: Deadline = NEVER, **changes: Any
) -> Compacted:
    fact = await compact(
        effect(**changes),
        compressor=compressor or parse_compressor("window:100"),
        renderer=cast("Renderer", renderer),
        tools=(),
        constraints=(),
        deadline=deadline,
    )
    assert isinstance(fact, Compacted)
    return fact


class Theirs:
    """Somebody's compressor."""

    name, sha256, trigger_tokens = "theirs", "0" * 64, 1

    async def plan(self, view: CompressionView, budget_tokens: int, deadline: Deadline) -> Any:
        raise NotImplementedError


class CountsForItself(Theirs):
    """Plans as ``window:100`` does, without asking the harness for a count."""

    async def plan(self, view: CompressionView, budget_tokens: int, deadline: Deadline) -> Any:
        async def count(messages: Sequence[Message]) -> int:
            return sum(len(message.text) for message in messages)

        own = CompressionView(
            messages=view.messages, tools=(), tokens=view.tokens, count=count, constraints=(), trigger=view.trigger
        )
        return await parse_compressor("window:100").plan(own, budget_tokens, deadline)


async def test_the_loop_turns_while_windows_are_counted() -> None:
    """Each count ends only once the loop has run something else."""
    loop = asyncio.get_running_loop()

    def until_the_loop_has_turned() -> None:
        turned = threading.Event()
        loop.call_soon_threadsafe(turned.set)
        assert turned.wait(_PATIENCE_S), "the loop stood still while a window was counted"

    renderer = Windows(until_the_loop_has_turned)
    fact = await compacted(renderer)
    assert fact.compaction.outcome is CompactionOutcome.APPLIED
    assert len(renderer.threads) > 1, "the compressor counts, and its plan is counted again"
    assert threading.current_thread() not in renderer.threads


@pytest.fixture
async def stuck() -> AsyncIterator[tuple[Windows, threading.Event]]:
    """A renderer that does not end before the test does, and what says that it has begun."""
    begun, over = threading.Event(), threading.Event()

    def until_the_end() -> None:
        begun.set()
        over.wait(_PATIENCE_S)

    yield Windows(until_the_end), begun
    over.set()


async def test_a_count_holds_no_deadline_up(stuck: tuple[Windows, threading.Event]) -> None:
    """Law 12: a timeout is known by the deadline that fired, whatever a thread is still at."""
    deadline = Deadline.after(0.02, "compressing")
    with pytest.raises(DeadlineReached) as caught:
        await compacted(stuck[0], deadline=deadline)
    assert caught.value.deadline is deadline


async def test_the_last_count_holds_no_deadline_up(stuck: tuple[Windows, threading.Event]) -> None:
    """The harness's own count of what a plan leaves has the same limit."""

    deadline = Deadline.after(0.02, "compressing")
    with pytest.raises(DeadlineReached) as caught:
        await compacted(stuck[0], compressor=CountsForItself(), deadline=deadline)
    assert caught.value.deadline is deadline


async def test_a_count_holds_no_cancellation_up(stuck: tuple[Windows, threading.Event]) -> None:
    renderer, begun = stuck
    work = asyncio.ensure_future(compacted(renderer))
    await asyncio.to_thread(begun.wait, _PATIENCE_S)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_a_compressor_that_does_not_heed_its_deadline() -> None:
    """Law 12: what it gives afterwards comes too late."""

    class Stubborn(Theirs):
        async def plan(self, view: CompressionView, budget_tokens: int, deadline: Deadline) -> Any:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return ()

    deadline = Deadline.after(0.02, "compressing")
    with pytest.raises(DeadlineReached) as caught:
        await compacted(Windows(), compressor=Stubborn(), deadline=deadline)
    assert caught.value.deadline is deadline


@pytest.mark.parametrize("error", [RuntimeError("their bug"), SystemExit(2), asyncio.CancelledError()])
async def test_what_a_compressor_raises_is_its_fault(error: BaseException) -> None:
    """The message says what was raised, and where in their code."""

    class Raises(Theirs):
        async def plan(self, view: CompressionView, budget_tokens: int, deadline: Deadline) -> Any:
            raise error

    with pytest.raises(CompressorFault, match=rf"compressor theirs raised {type(error).__name__}") as caught:
        await compacted(Windows(), compressor=Raises())
    assert not caught.value.retryable
    if isinstance(error, RuntimeError):
        assert "their bug (test_compaction.py:" in str(caught.value)


async def test_a_fault_of_another_domain_keeps_it() -> None:
    class Lost(Theirs):
        async def plan(self, view: CompressionView, budget_tokens: int, deadline: Deadline) -> Any:
            raise SandboxFault("gone")

    with pytest.raises(Fault, match=r"^gone$") as caught:
        await compacted(Windows(), compressor=Lost())
    assert type(caught.value) is SandboxFault


def refuse() -> None:
    raise ConfigError("No user query found in messages.")


async def test_a_template_that_refuses_a_candidate() -> None:
    """A compressor that lets it pass has failed, and the history stays."""

    class Counts(Theirs):
        async def plan(self, view: CompressionView, budget_tokens: int, deadline: Deadline) -> Any:
            return await view.count(view.messages)

    compaction = (await compacted(Windows(refuse), compressor=Counts())).compaction
    assert compaction.outcome is CompactionOutcome.FAILED
    assert compaction.reason == "the template refuses the compacted history: No user query found in messages."
    assert compaction.edits == ()


async def test_a_template_that_refuses_what_a_plan_leaves() -> None:
    compaction = (await compacted(Windows(refuse), compressor=CountsForItself())).compaction
    assert compaction.outcome is CompactionOutcome.FAILED
    assert compaction.reason == "the template refuses the compacted history: No user query found in messages."
    assert compaction.edits
    assert compaction.tokens_after is None


async def test_what_was_denied_is_recorded_as_failed() -> None:
    """Law 7: never silently skipped."""
    renderer = Windows()
    fact = await compacted(renderer, denied="no summary can be sampled")
    assert (fact.compaction.outcome, fact.compaction.reason) == (CompactionOutcome.FAILED, "no summary can be sampled")
    assert renderer.threads == []
