"""The first fact of an episode: everything that decides it, put together from plan, parts and options."""

from __future__ import annotations

from dataclasses import replace

from agentenv.core.task import OnText
from agentenv.engine.ledger import Ledger
from agentenv.engine.prompt import compose_opening
from agentenv.envs.plan import EpisodeOptions, EpisodeParts, EpisodePlan
from agentenv.records.axes import BudgetKind, BudgetOwner
from agentenv.records.budgets import Budget
from agentenv.records.facts import EpisodeStarted
from agentenv.records.messages import ToolSpec


def opening_fact(
    plan: EpisodePlan, parts: EpisodeParts, options: EpisodeOptions, tools: tuple[ToolSpec, ...]
) -> EpisodeStarted:
    """Make ``EpisodeStarted``; what only the running sandbox can tell is added by its owner."""
    task = plan.task
    budgets = (*task.budgets, *_with_window(options.budgets, parts.identity.context_window))
    shown = Ledger(budgets).states() if options.show_budgets == "first_message" else ()
    opening = compose_opening(task.messages, task.constraints, plan.demonstrations, left=shown)
    sampling = options.sampling
    if not sampling.stop_token_ids:
        sampling = replace(sampling, stop_token_ids=parts.renderer.stop_token_ids)
    return EpisodeStarted(
        episode_id=plan.episode_id,
        attempt=plan.attempt,
        suite=plan.suite,
        task_id=task.id,
        task_sha256=task.content_sha256,
        task_seed=plan.task_seed,
        level=plan.level,
        group_id=plan.group_id,
        member=plan.member,
        seed=plan.seed,
        messages=opening.messages,
        tools=tools,
        budgets=budgets,
        constraints=opening.constraints,
        context_window=parts.identity.context_window,
        sampling=sampling,
        ends_on_text=task.on_text is OnText.FINAL_ANSWER,
        scoring_required=task.grader is not None,
        grade_on=tuple(sorted(task.grade_on)),
        compressor=parts.compressor.name,
        trigger_tokens=parts.compressor.trigger_tokens,
        reserve_tokens=min(options.reserve_tokens, sampling.max_tokens),
        show_budgets=options.show_budgets,
    )


def _with_window(budgets: tuple[Budget, ...], window: int | None) -> tuple[Budget, ...]:
    """Make the engine's window a context budget of the collector, or tighten the one that is set."""
    if window is None:
        return budgets
    kept = tuple(budget for budget in budgets if budget.kind is not BudgetKind.CONTEXT_TOKENS)
    limit = min([window, *(budget.limit for budget in budgets if budget.kind is BudgetKind.CONTEXT_TOKENS)])
    return (*kept, Budget(kind=BudgetKind.CONTEXT_TOKENS, limit=limit, owner=BudgetOwner.COLLECTOR))
