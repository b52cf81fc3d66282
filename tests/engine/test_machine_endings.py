"""Which reason ends an episode: one test per line of the order of checks in `records.budgets`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from agentenv.engine.effects import Act, Compress, Ended, Finish, Render, Sample, Score
from agentenv.engine.fold import fold
from agentenv.engine.machine import EpisodeMachine
from agentenv.errors import ConfigError, LawBreach, OrderError
from agentenv.records.axes import (
    BudgetKind,
    BudgetOwner,
    CallStatus,
    FaultDomain,
    Outcome,
    Purpose,
    Scoring,
    StopReason,
)
from agentenv.records.axes import (
    Finish as EngineFinish,
)
from agentenv.records.budgets import Budget
from agentenv.records.episode import FaultReport
from agentenv.records.facts import Fact, Scored, Stopped, SummaryAsked
from agentenv.records.messages import Message, Role, TaskEnd

from tests.engine.puppet import acted, compacted, rendered, scored, started, turn

TASK, COLLECTOR = BudgetOwner.TASK, BudgetOwner.COLLECTOR


def budget(kind: BudgetKind, limit: float, owner: BudgetOwner = COLLECTOR) -> Budget:
    return Budget(kind=kind, limit=limit, owner=owner)


class Play:
    """Feeds facts and keeps them."""

    def __init__(self, **start: object) -> None:
        self.machine = EpisodeMachine()
        self.facts: list[Fact] = []
        self.feed(started(**start))

    def feed(self, fact: Fact) -> None:
        self.facts.append(fact)
        self.machine.feed(fact)

    def prompt(self, appended: int = 5) -> None:
        assert isinstance(self.machine.effect, Render)
        self.feed(rendered(self.machine.effect, appended=appended))

    def reply(self, **how: object) -> None:
        assert isinstance(self.machine.effect, Sample), self.machine.phase
        self.feed(turn(self.machine.effect, **how))  # type: ignore[arg-type]

    def act(self, **how: object) -> None:
        assert isinstance(self.machine.effect, Act)
        self.feed(acted(self.machine, self.machine.effect, **how))

    def step(self, **how: object) -> None:
        self.prompt()
        self.reply(**how)
        self.act()

    def close(self) -> None:
        while not isinstance(self.machine.effect, Ended):
            effect = self.machine.effect
            if isinstance(effect, Render):
                assert effect.final
                self.prompt()
            elif isinstance(effect, Score):
                self.feed(scored())
            else:
                assert isinstance(effect, Finish), effect
                self.feed(self.machine.ending(0.0))

    def ended(self) -> tuple[StopReason | None, str | None]:
        self.close()
        record = fold(self.facts)
        return record.reason, record.budget


def test_text_without_a_call_is_the_final_answer_where_the_task_says_so() -> None:
    """A reply that stopped acting ends the episode, and is what the grader gets."""
    play = Play(ends_on_text=True)
    play.prompt()
    play.reply()
    play.act()
    effect = play.machine.effect
    assert isinstance(effect, Score)
    assert effect.answer == "hm"
    assert play.ended() == (StopReason.FINAL_ANSWER, None)


def test_text_without_a_call_is_a_step_like_any_other_elsewhere() -> None:
    """It gets an observation that says what is wrong, and the episode goes on."""
    play = Play(ends_on_text=False)
    play.step()
    effect = play.machine.effect
    assert isinstance(effect, Render)
    assert [message.role for message in effect.new_messages] == [Role.TOOL]
    assert "no tool call" in effect.new_messages[0].text


def test_a_malformed_call_is_never_a_final_answer() -> None:
    """Parse errors become an observation even where text ends the episode."""
    play = Play(ends_on_text=True)
    play.step(errors=1)
    assert isinstance(play.machine.effect, Render)
    assert play.machine.reason is None


@pytest.mark.parametrize(("end", "reason"), [(TaskEnd.COMPLETED, "completed"), (TaskEnd.FAILED, "failed")])
def test_a_tool_may_end_the_task(end: TaskEnd, reason: str) -> None:
    """What a terminating tool says is the reason; its observation is still kept as tokens."""
    play = Play()
    play.prompt()
    play.reply(calls=1)
    play.act(ends=end)
    assert isinstance(play.machine.effect, Render)
    assert play.machine.effect.final
    assert play.ended()[0] == reason
    final = fold(play.facts).final_prompt_ids
    assert final is not None
    assert len(final) // 4 == 5 + 3 + 5


def test_the_turn_budget_ends_after_the_step() -> None:
    """The last turn's action is still carried out."""
    play = Play(budgets=(budget(BudgetKind.TURNS, 2),), ends_on_text=False)
    play.step(calls=1)
    play.step(calls=1)
    assert play.ended() == (StopReason.COLLECTOR_BUDGET, "collector.turns")
    assert len(fold(play.facts).steps) == 2


def test_the_tasks_budget_wins_over_the_collectors() -> None:
    """Of two budgets of one kind the task's is checked first: terminated wins over truncated."""
    both = (budget(BudgetKind.TURNS, 1), budget(BudgetKind.TURNS, 1, TASK))
    play = Play(budgets=both, ends_on_text=False)
    play.step(calls=1)
    assert play.ended() == (StopReason.TASK_BUDGET, "task.turns")
    assert fold(play.facts).terminated


def test_turns_are_checked_before_sampled_tokens() -> None:
    """Turns, sampled tokens, cost, wall-clock: the first of them that leaves nothing."""
    budgets = (budget(BudgetKind.SAMPLED_TOKENS, 3, TASK), budget(BudgetKind.TURNS, 1))
    play = Play(budgets=budgets, ends_on_text=False)
    play.step(calls=1)
    assert play.ended() == (StopReason.COLLECTOR_BUDGET, "collector.turns")


def test_a_tasks_own_ending_wins_over_a_budget_spent_in_the_same_step() -> None:
    """A task that ended in the step that spent the last turn ended by itself."""
    play = Play(budgets=(budget(BudgetKind.TURNS, 1),))
    play.step()
    assert play.ended() == (StopReason.FINAL_ANSWER, None)


def test_sampled_tokens_clamp_the_call_before_it_is_made() -> None:
    """What is left bounds ``max_tokens``, so the budget is never overspent."""
    play = Play(budgets=(budget(BudgetKind.SAMPLED_TOKENS, 5),), ends_on_text=False)
    play.step(calls=1)
    play.prompt()
    effect = play.machine.effect
    assert isinstance(effect, Sample)
    assert effect.sampling.max_tokens == 2
    play.reply(n=2, calls=1)
    play.act()
    assert play.ended() == (StopReason.COLLECTOR_BUDGET, "collector.sampled_tokens")


def test_a_reply_cut_without_an_action_is_generation_length() -> None:
    """Cut by the reply's own limit: truncated by length, and by no budget."""
    play = Play()
    play.prompt()
    play.reply(n=8, finish=EngineFinish.LENGTH)
    play.act()
    assert play.ended() == (StopReason.GENERATION_LENGTH, None)
    assert fold(play.facts).truncated


def test_a_reply_cut_by_the_token_budget_is_that_budgets_ending() -> None:
    """Cut where the budget clamped it: the budget ran out."""
    play = Play(budgets=(budget(BudgetKind.SAMPLED_TOKENS, 4, TASK),))
    play.prompt()
    play.reply(n=4, finish=EngineFinish.LENGTH)
    play.act()
    assert play.ended() == (StopReason.TASK_BUDGET, "task.sampled_tokens")


def test_calls_beyond_the_budget_are_refused_and_end_the_episode() -> None:
    """In order: the first calls run, the rest is refused, then the budget ends the episode."""
    play = Play(budgets=(budget(BudgetKind.TOOL_CALLS, 3, TASK),))
    play.step(calls=2)
    play.prompt()
    play.reply(calls=2)
    effect = play.machine.effect
    assert isinstance(effect, Act)
    assert effect.allowed_calls == 1
    play.act()
    assert play.ended() == (StopReason.TASK_BUDGET, "task.tool_calls")
    assert [r.status for s in fold(play.facts).steps for r in s.results] == ["ok", "ok", "ok", "refused"]


def test_a_spent_tool_budget_still_lets_the_policy_answer() -> None:
    """Only a refused call ends the episode: a last answer in text needs none."""
    play = Play(budgets=(budget(BudgetKind.TOOL_CALLS, 1),))
    play.step(calls=1)
    play.step()
    assert play.ended() == (StopReason.FINAL_ANSWER, None)


def test_a_prompt_that_leaves_no_room_asks_for_a_compaction_then_overflows() -> None:
    """Without a compaction that fits, the ending is ``context_overflow``; the failed attempt is on record."""
    play = Play(budgets=(budget(BudgetKind.CONTEXT_TOKENS, 20),), reserve_tokens=4)
    play.prompt(appended=20)
    effect = play.machine.effect
    assert isinstance(effect, Compress)
    assert (effect.trigger, effect.budget_tokens, effect.tokens) == ("overflow", 16, 20)
    play.feed(compacted(effect, applied=False))
    assert play.ended() == (StopReason.CONTEXT_OVERFLOW, "collector.context_tokens")
    assert [c.outcome for c in fold(play.facts).failed_compactions] == ["failed"]


def test_a_context_budget_of_the_task_terminates() -> None:
    """The same, where the context is the task's own limit."""
    play = Play(budgets=(budget(BudgetKind.CONTEXT_TOKENS, 20, TASK),))
    play.prompt(appended=20)
    assert isinstance(play.machine.effect, Compress)
    play.feed(compacted(play.machine.effect, applied=False))
    assert play.ended() == (StopReason.TASK_BUDGET, "task.context_tokens")


def test_an_applied_compaction_opens_a_new_segment() -> None:
    """The history was rewritten: the next prompt is a segment of its own, and says why."""
    play = Play(trigger_tokens=10)
    play.prompt(appended=12)
    assert isinstance(play.machine.effect, Compress)
    play.feed(compacted(play.machine.effect, applied=True))
    effect = play.machine.effect
    assert isinstance(effect, Render)
    assert effect.previous_ids is None
    assert effect.reason == "compaction k0"
    assert [message.id for message in effect.window] == ["m0", "m2"]
    play.prompt(appended=9)
    play.reply()
    play.act()
    play.close()
    record = fold(play.facts)
    assert [segment.reason for segment in record.segments] == ["first", "compaction k0"]
    assert record.steps[0].compactions[0].id == "k0"


def test_a_failed_compaction_by_trigger_lets_the_episode_go_on() -> None:
    """It is recorded, never skipped, and tried once per turn."""
    play = Play(trigger_tokens=10)
    play.prompt(appended=12)
    assert isinstance(play.machine.effect, Compress)
    play.feed(compacted(play.machine.effect, applied=False))
    assert isinstance(play.machine.effect, Sample)


def test_a_summary_written_by_the_policy_is_a_turn_of_its_own() -> None:
    """It has tokens, a segment and a place in the turn count; the main segment begins anew after it."""
    play = Play(trigger_tokens=10)
    play.prompt(appended=12)
    play.feed(SummaryAsked(messages=(Message(id="x", role=Role.USER, text="sum up"),), max_tokens=3))
    play.prompt(appended=4)
    effect = play.machine.effect
    assert isinstance(effect, Sample)
    assert (effect.purpose, effect.sampling.max_tokens, len(effect.prompt_ids)) == (Purpose.SUMMARY, 3, 4)
    play.reply(n=3)
    compress = play.machine.effect
    assert isinstance(compress, Compress)
    assert (compress.summary, compress.summary_turns) == ("hm", (0,))
    play.feed(compacted(compress, applied=False))
    assert isinstance(play.machine.effect, Render)
    play.prompt(appended=9)
    play.reply()
    play.act()
    play.close()
    record = fold(play.facts)
    assert [(s.purpose, s.segment) for s in record.steps] == [("summary", 1), ("act", 2)]
    assert [s.reason for s in record.segments] == ["first", "summary", "summary"]


def test_a_fault_is_described_and_leaves_the_episode_unscored() -> None:
    """Whose fault it was is a field of its own; scoring stays ``not_run``, not zero."""
    play = Play()
    play.prompt()
    report = FaultReport(domain=FaultDomain.POLICY_SERVER, error="PolicyServerFault", message="gone")
    play.feed(Stopped(reason=StopReason.FAULT, fault=report))
    assert play.ended() == (StopReason.FAULT, None)
    record = fold(play.facts)
    assert (record.scoring, record.reward, record.fault) == (Scoring.NOT_RUN, None, report)
    assert not record.done


def test_an_unscored_ending_is_never_done() -> None:
    """A grader that failed leaves reward null, and the episode is to be run again."""
    play = Play()
    play.step()
    report = FaultReport(domain=FaultDomain.GRADER, error="GraderFault", message="hung")
    play.feed(Scored(scoring=Scoring.TIMED_OUT, components=(), outcome=Outcome.UNKNOWN, fault=report))
    play.close()
    record = fold(play.facts)
    assert (record.reason, record.scoring, record.reward) == (StopReason.FINAL_ANSWER, Scoring.TIMED_OUT, None)
    assert not record.done


def test_a_fact_out_of_order_is_refused_with_the_phases_it_fits() -> None:
    """The machine takes no fact that its phase does not accept."""
    play = Play()
    with pytest.raises(OrderError, match="Scored cannot come in phase render; it can in score"):
        play.machine.feed(scored())


def test_a_reply_longer_than_allowed_breaks_the_law() -> None:
    """A clamp that the engine ignored is no record."""
    play = Play()
    play.prompt()
    effect = play.machine.effect
    assert isinstance(effect, Sample)
    long = turn(effect, n=8)
    effect.sampling = replace(effect.sampling, max_tokens=2)
    long = replace(long, sampling=effect.sampling)
    with pytest.raises(LawBreach, match="8 tokens were sampled, 2 were allowed"):
        play.machine.feed(long)


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf"), 1.5])
def test_a_budget_that_means_nothing_is_refused(limit: float) -> None:
    """Zero, negative, not finite, or a fraction of a turn."""
    with pytest.raises(ConfigError, match=r"Budget collector\.turns"):
        budget(BudgetKind.TURNS, limit)


def test_the_answer_is_that_of_the_last_reply() -> None:
    """Text said before a later call is no answer: the grader gets what stands at the end."""
    play = Play(ends_on_text=False, budgets=(budget(BudgetKind.TURNS, 2),))
    play.step()
    play.step(calls=1)
    while isinstance(play.machine.effect, Render):
        play.prompt()
    assert isinstance(play.machine.effect, Score)
    assert play.machine.effect.answer is None


def test_calls_after_the_one_that_ended_the_task_cost_nothing() -> None:
    """Law 6: only calls that were taken up are charged, and only those that ran reach the grader."""
    play = Play(budgets=(budget(BudgetKind.TOOL_CALLS, 1),))
    play.prompt()
    play.reply(calls=3)
    effect = play.machine.effect
    assert isinstance(effect, Act)
    fact = acted(play.machine, effect, ends=TaskEnd.COMPLETED)
    rest = tuple(replace(result, status=CallStatus.CANCELLED) for result in fact.results[1:])
    play.feed(replace(fact, results=(fact.results[0], *rest)))
    while isinstance(play.machine.effect, Render):
        play.prompt()
    assert isinstance(play.machine.effect, Score)
    assert [call.id for call, _ in play.machine.effect.calls] == ["t0c0"]
    assert play.ended()[0] is StopReason.COMPLETED
    assert [state.spent for state in fold(play.facts).budgets] == [1]


def test_a_summary_that_no_budget_allows_is_a_failed_compaction() -> None:
    """Law 7: never silently skipped; the episode goes on to whatever its own budgets say."""
    play = Play(trigger_tokens=10, budgets=(budget(BudgetKind.CONTEXT_TOKENS, 40),))
    play.prompt(appended=12)
    play.feed(SummaryAsked(messages=(Message(id="x", role=Role.USER, text="sum up"),), max_tokens=3))
    play.prompt(appended=40)
    effect = play.machine.effect
    assert isinstance(effect, Compress)
    assert effect.denied == "no summary can be sampled: collector.context_tokens leaves no token"
    play.feed(compacted(effect, applied=False))
    assert isinstance(play.machine.effect, Render)
    play.prompt(appended=12)
    assert isinstance(play.machine.effect, Sample)


def test_what_comes_after_the_end_is_decided_does_not_rewrite_it() -> None:
    """Laws 4 and 5: cancelled while scoring, the ending stands; the episode is not scored and is run again."""
    play = Play()
    play.step()
    assert isinstance(play.machine.effect, Score)
    play.feed(Stopped(reason=StopReason.CANCELLED))
    assert play.ended() == (StopReason.FINAL_ANSWER, None)
    record = fold(play.facts)
    assert (record.terminated, record.scoring, record.cut_by) == (True, Scoring.NOT_RUN, StopReason.CANCELLED)
    assert not record.done


def test_a_context_of_the_task_that_cuts_a_reply_terminates() -> None:
    """Law 6: a budget of the task terminates, also where it is the context that cut the reply."""
    play = Play(budgets=(budget(BudgetKind.CONTEXT_TOKENS, 9, TASK),))
    play.prompt()
    play.reply(n=4, finish=EngineFinish.LENGTH)
    play.act()
    assert play.ended() == (StopReason.TASK_BUDGET, "task.context_tokens")


def test_results_that_answer_other_calls_break_the_law() -> None:
    """One result per call, in the order of the calls."""
    play = Play()
    play.prompt()
    play.reply(calls=2)
    effect = play.machine.effect
    assert isinstance(effect, Act)
    fact = acted(play.machine, effect)
    with pytest.raises(LawBreach, match="answers others"):
        play.machine.feed(replace(fact, results=fact.results[:1]))
