"""The laws of an episode, on any legal course of events."""

from __future__ import annotations

from itertools import pairwise

from agentenv.engine.audit import audit
from agentenv.engine.effects import Ended, Render, Sample
from agentenv.engine.fold import fold, replay
from agentenv.engine.ledger import reason_for
from agentenv.engine.machine import EpisodeMachine
from agentenv.records.axes import BudgetKind, BudgetOwner, StopReason
from agentenv.records.facts import ActionTaken, EpisodeEnded, EpisodeStarted, PromptRendered, TurnSampled
from agentenv.records.tokens import unpack_ids
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.puppet import Puppet, starts


def played(data: st.DataObject, start: EpisodeStarted) -> Puppet:
    puppet = Puppet(data.draw)
    puppet.run(start)
    return puppet


@given(st.data(), starts())
def test_an_ended_episode_has_one_reason_and_one_flag(data: st.DataObject, start: EpisodeStarted) -> None:
    """Law 4: an ended episode has exactly one stop reason and exactly one of terminated, truncated."""
    ended = played(data, start).facts[-1]
    assert isinstance(ended, EpisodeEnded)
    assert ended.terminated is not ended.truncated
    assert ended.terminated is ended.reason.terminated
    owners = {StopReason.TASK_BUDGET: BudgetOwner.TASK, StopReason.COLLECTOR_BUDGET: BudgetOwner.COLLECTOR}
    if ended.reason in owners:
        assert ended.budget is not None
        assert ended.budget.startswith(owners[ended.reason])


@given(st.data(), starts())
def test_spent_and_remaining_make_the_limit_at_every_step(data: st.DataObject, start: EpisodeStarted) -> None:
    """Law 6: spent + remaining = limit at every step, for every budget; a call is clamped before sampling."""
    machine = EpisodeMachine()
    for fact in played(data, start).facts:
        before = machine.effect
        if isinstance(fact, TurnSampled):
            assert isinstance(before, Sample)
            for kind in (BudgetKind.SAMPLED_TOKENS,):
                assert before.sampling.max_tokens <= machine.ledger.remaining(kind)
            window = machine.ledger.remaining(BudgetKind.CONTEXT_TOKENS) + machine.ledger.spent(
                BudgetKind.CONTEXT_TOKENS
            )
            assert len(before.prompt_ids) + before.sampling.max_tokens <= window
        machine.feed(fact)
        for state in machine.ledger.states():
            assert state.spent + state.remaining == state.limit
            if state.kind in (BudgetKind.TURNS, BudgetKind.SAMPLED_TOKENS, BudgetKind.TOOL_CALLS):
                assert state.remaining >= 0


@given(st.data(), starts())
def test_prompts_of_a_segment_extend_one_another(data: st.DataObject, start: EpisodeStarted) -> None:
    """Law 1: within a segment every prompt begins with the previous prompt and completion, id for id."""
    puppet = played(data, start)
    prompts: list[tuple[int, list[int]]] = []
    segment: list[int] = []
    for fact in puppet.facts:
        if isinstance(fact, PromptRendered) and not fact.final:
            if fact.new_segment_reason is not None:
                segment = []
            segment = [*segment, *unpack_ids(fact.appended_ids)]
            prompts.append((fact.segment, segment))
        elif isinstance(fact, TurnSampled):
            segment = [*segment, *unpack_ids(fact.sampled.completion_ids)]
            prompts.append((prompts[-1][0], segment))
    for (a, before), (b, after) in pairwise(prompts):
        if a == b:
            assert after[: len(before)] == before
    record = fold(puppet.facts)
    for step in record.steps:
        ids = unpack_ids(record.segments[step.segment].token_ids)
        end = step.prompt_length + step.completion_length
        assert list(ids[step.prompt_length : end]) == list(unpack_ids(step.sampled.completion_ids))


@given(st.data(), starts())
def test_replaying_the_facts_gives_the_same_effects(data: st.DataObject, start: EpisodeStarted) -> None:
    """Replay is feeding stored facts to a fresh machine: the effects are a function of the facts."""
    puppet = played(data, start)
    machine = EpisodeMachine()
    for fact, effect in zip(puppet.facts, puppet.effects, strict=True):
        again = machine.feed(fact)
        assert type(again) is type(effect)
        if isinstance(again, Render | Sample):
            assert again.segment == effect.segment if isinstance(again, Render) else again.seed == effect.seed
    assert isinstance(machine.effect, Ended)


@given(st.data(), starts())
def test_whatever_the_machine_lets_happen_passes_the_audit(data: st.DataObject, start: EpisodeStarted) -> None:
    """The audit of `verify` finds no breach in any episode that the machine itself let happen."""
    record, findings = audit(played(data, start).facts)
    assert record is not None
    assert findings == []


@given(st.data(), starts())
def test_every_prefix_of_the_facts_can_be_replayed(data: st.DataObject, start: EpisodeStarted) -> None:
    """Law 11: an interrupted attempt is a prefix of its facts, and folds to a record that has not ended."""
    facts = played(data, start).facts
    cut = data.draw(st.integers(1, len(facts)))
    record = fold(facts[:cut])
    assert record.ended == isinstance(facts[cut - 1], EpisodeEnded)
    assert replay(facts[:cut]).turn == sum(isinstance(fact, TurnSampled) for fact in facts[:cut])


@given(st.data(), starts())
def test_running_out_names_the_budget_that_did(data: st.DataObject, start: EpisodeStarted) -> None:
    """Law 6: a budget of the task terminates, a budget of the collector truncates, and the ending names it."""
    puppet = played(data, start)
    ended = puppet.facts[-1]
    assert isinstance(ended, EpisodeEnded)
    named = [budget for budget in start.budgets if budget.name == ended.budget]
    if named:
        assert reason_for(named[0]) is ended.reason
        state = next(state for state in ended.budgets if state.name == ended.budget)
        refused = any(
            result.status == "refused"
            for fact in puppet.facts
            if isinstance(fact, ActionTaken)
            for result in fact.results
        )
        short = state.kind is BudgetKind.CONTEXT_TOKENS or (state.kind is BudgetKind.TOOL_CALLS and refused)
        assert state.remaining <= 0 or short
