"""Performs one compaction: asks the compressor, checks its plan against law 7, and writes down what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from agentenv.core.compressor import CannotCompact, CompressionView, Compressor, SummaryRequest
from agentenv.core.deadline import Deadline
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

    def count(messages: Sequence[Message]) -> int:
        return len(renderer.open(messages, tools))

    view = CompressionView(
        messages=effect.window,
        tools=tools,
        tokens=effect.tokens,
        count=count,
        constraints=constraints,
        trigger=effect.trigger,
        summary=effect.summary,
    )
    edits: tuple[Edit, ...] = ()
    tokens_after: int | None = None
    try:
        plan = await _plan(compressor, view, effect.budget_tokens, deadline, denied=effect.denied)
        if isinstance(plan, SummaryRequest):
            return _asked(plan, effect, compressor.name)
        reason = check_edits(effect.window, plan, taken=effect.taken)
        if reason is None:
            edits = plan
            tokens_after = count(apply_edits(effect.window, edits))
            reason = check_sizes(
                tokens_before=effect.tokens, tokens_after=tokens_after, budget_tokens=effect.budget_tokens
            )
    except CannotCompact as error:
        reason = str(error)
    except ConfigError as error:
        reason = f"the template refuses the compacted history: {error}"
    return Compacted(
        compaction=Compaction(
            id=effect.id,
            compressor=compressor.name,
            trigger=effect.trigger,
            budget_tokens=effect.budget_tokens,
            edits=edits,
            tokens_before=effect.tokens,
            tokens_after=tokens_after,
            outcome=CompactionOutcome.APPLIED if reason is None else CompactionOutcome.FAILED,
            reason=reason,
            duration_s=time.perf_counter() - began,
            summary_turns=effect.summary_turns,
        )
    )


def _asked(plan: SummaryRequest, effect: Compress, compressor: str) -> SummaryAsked:
    if effect.summary is not None:
        raise CannotCompact(f"{compressor} asked for a second summary")
    asked = SummaryAsked(messages=plan.messages, max_tokens=plan.max_tokens)
    try:
        settled(asked, of=f"compressor {compressor}")
    except UsageError as error:
        raise CompressorFault(f"compressor {compressor} asked for no summary that could be written: {error}") from error
    return asked


async def _plan(
    compressor: Compressor, view: CompressionView, budget_tokens: int, deadline: Deadline, *, denied: str | None
) -> tuple[Edit, ...] | SummaryRequest:
    if denied is not None:
        raise CannotCompact(denied)
    try:
        async with deadline.enforce():
            return await compressor.plan(view, budget_tokens, deadline)
    except (CannotCompact, AgentEnvError):
        raise
    except Exception as error:
        raise CompressorFault(f"compressor {compressor.name} raised {type(error).__name__}: {error}") from error
