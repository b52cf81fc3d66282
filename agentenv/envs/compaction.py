"""Performs one compaction: asks the compressor, checks its plan against law 7, and writes down what came of it.

A whole window takes milliseconds to render, and a plan renders several: they are rendered in threads, so that the other
episodes of the loop go on. One that is not waited for any more (a deadline, a cancellation) is left to end by itself:
a renderer changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from agentenv.core.boundary import is_its_own
from agentenv.core.compressor import CannotCompact, CompressionView, Compressor, SummaryRequest
from agentenv.core.deadline import Deadline
from agentenv.core.giving_up import wait_until
from agentenv.core.origin import raised
from agentenv.core.renderer import Renderer
from agentenv.engine.compaction import apply_edits, check_edits, check_sizes
from agentenv.engine.effects import Compress
from agentenv.errors import AgentEnvError, CompressorFault, ConfigError, UsageError
from agentenv.records.axes import CompactionOutcome
from agentenv.records.codec import settled
from agentenv.records.compaction import Compaction, Edit
from agentenv.records.constraints import Constraint
from agentenv.records.facts import Compacted, SummaryAsked
from agentenv.records.messages import Message, ToolSpec

Count = Callable[[Sequence[Message]], Awaitable[int]]


class _Result(NamedTuple):
    """What became of a plan."""

    edits: tuple[Edit, ...] = ()
    """Empty where they were not even edits of this window."""
    tokens_after: int | None = None
    """None where the window after the edits was not counted."""
    failure: str | None = None
    """Why the history stays as it is; None where the edits are applied."""


async def compact(
    effect: Compress,
    *,
    compressor: Compressor,
    renderer: Renderer,
    tools: tuple[ToolSpec, ...],
    constraints: tuple[Constraint, ...],
    deadline: Deadline,
) -> Compacted | SummaryAsked:
    """Plan, check and measure one compaction.

    A plan that breaks law 7, does not fit or is not smaller is recorded as failed; it never reaches the history.

    Raises:
        CompressorFault: The compressor raised something its contract does not name.
        DeadlineReached: Passed through.
    """
    began = time.perf_counter()

    async def count(messages: Sequence[Message]) -> int:
        return len(await asyncio.to_thread(renderer.open, messages, tools))

    view = CompressionView(
        messages=effect.window,
        tools=tools,
        tokens=effect.tokens,
        count=count,
        constraints=constraints,
        trigger=effect.trigger,
        summary=effect.summary,
    )
    try:
        plan = await _plan(compressor, view, effect, deadline)
        if isinstance(plan, SummaryRequest):
            return _asked(plan, effect, compressor.name)
        result = await _checked(plan, effect, count, deadline)
    except CannotCompact as error:
        result = _Result(failure=str(error))
    return _compacted(effect, compressor.name, result, time.perf_counter() - began)


async def _plan(
    compressor: Compressor, view: CompressionView, effect: Compress, deadline: Deadline
) -> tuple[Edit, ...] | SummaryRequest:
    if effect.denied is not None:
        raise CannotCompact(effect.denied)
    whose = f"compressor {compressor.name}"
    try:
        return await wait_until(deadline, compressor.plan(view, effect.budget_tokens, deadline), whose=whose)
    except ConfigError as error:
        raise CannotCompact(_refused(error)) from error
    except (CannotCompact, AgentEnvError):
        raise
    except BaseException as error:
        if not is_its_own(error):
            raise
        raise CompressorFault.permanent(f"{whose} {raised(error)}") from error


def _asked(plan: SummaryRequest, effect: Compress, compressor: str) -> SummaryAsked:
    if effect.summary is not None:
        raise CannotCompact(f"{compressor} asked for a second summary")
    asked = SummaryAsked(messages=plan.messages, max_tokens=plan.max_tokens)
    try:
        settled(asked, of=f"compressor {compressor}")
    except UsageError as error:
        raise CompressorFault(f"compressor {compressor} asked for no summary that could be written: {error}") from error
    return asked


async def _checked(plan: tuple[Edit, ...], effect: Compress, count: Count, deadline: Deadline) -> _Result:
    """Hold a plan against law 7, its own count of what it leaves notwithstanding."""
    failure = check_edits(effect.window, plan, taken=effect.taken)
    if failure is not None:
        return _Result(failure=failure)
    try:
        async with deadline.enforce():
            after = await count(apply_edits(effect.window, plan))
    except ConfigError as error:
        return _Result(plan, failure=_refused(error))
    failure = check_sizes(tokens_before=effect.tokens, tokens_after=after, budget_tokens=effect.budget_tokens)
    return _Result(plan, after, failure)


def _refused(error: ConfigError) -> str:
    return f"the template refuses the compacted history: {error}"


def _compacted(effect: Compress, compressor: str, result: _Result, duration_s: float) -> Compacted:
    return Compacted(
        compaction=Compaction(
            id=effect.id,
            compressor=compressor,
            trigger=effect.trigger,
            budget_tokens=effect.budget_tokens,
            edits=result.edits,
            tokens_before=effect.tokens,
            tokens_after=result.tokens_after,
            outcome=CompactionOutcome.APPLIED if result.failure is None else CompactionOutcome.FAILED,
            reason=result.failure,
            duration_s=duration_s,
            summary_turns=effect.summary_turns,
        )
    )
