"""The rules of one episode as a machine without I/O: facts go in, the next effect comes out.

Owned here: what the policy sees, what it may spend, when a segment ends, which reason ends the episode. Not owned:
clocks, processes, networks, text rendering. Three things rest on that: replay is feeding stored facts to a fresh
machine; going on in mid-episode is replay that goes on; and the rules are property-tested without a clock.

The machine is always in one phase, and each phase takes the facts of `ACCEPTS` alone::

    start ─EpisodeStarted─► render ─PromptRendered─► sample ─TurnSampled─► act ─ActionTaken─► render …
                              ▲  │                                          │
                              │  └─prompt too long─► compress ─Compacted────┘(a new segment)
    any ─Stopped or an ending─► last render ─► score ─► finish ─EpisodeEnded─► ended
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any, ClassVar

from agentenv.engine.compacting import Compacting
from agentenv.engine.effects import Act, Compress, Effect, Ended, Finish, Render, Sample, Score
from agentenv.engine.ending import End, end_of_action, task_end
from agentenv.engine.ledger import BEFORE_SAMPLING, Clamp, Ledger, reason_for
from agentenv.engine.observation import executed_calls
from agentenv.engine.seeds import call_seed
from agentenv.engine.window import Window
from agentenv.errors import LawBreach, OrderError
from agentenv.records.axes import (
    BudgetKind,
    CompactionOutcome,
    FaultDomain,
    Outcome,
    Purpose,
    Scoring,
    StopReason,
)
from agentenv.records.budgets import Budget
from agentenv.records.episode import FaultReport
from agentenv.records.facts import (
    ActionTaken,
    Compacted,
    EpisodeEnded,
    EpisodeStarted,
    Fact,
    PromptRendered,
    Scored,
    Stopped,
    SummaryAsked,
    TurnSampled,
)
from agentenv.records.messages import ToolCall, ToolResult
from agentenv.records.tokens import SamplingParams


class Phase(StrEnum):
    """Where the episode stands."""

    START = "start"
    RENDER = "render"
    COMPRESS = "compress"
    SAMPLE = "sample"
    ACT = "act"
    LAST_RENDER = "last_render"
    SCORE = "score"
    FINISH = "finish"
    ENDED = "ended"


_RUNNING = (Phase.RENDER, Phase.COMPRESS, Phase.SAMPLE, Phase.ACT)

ACCEPTS: dict[type[Any], tuple[Phase, ...]] = {
    EpisodeStarted: (Phase.START,),
    PromptRendered: (Phase.RENDER, Phase.LAST_RENDER),
    SummaryAsked: (Phase.COMPRESS,),
    Compacted: (Phase.COMPRESS,),
    TurnSampled: (Phase.SAMPLE,),
    ActionTaken: (Phase.ACT,),
    Stopped: (*_RUNNING, Phase.LAST_RENDER, Phase.SCORE),
    Scored: (Phase.SCORE,),
    EpisodeEnded: (Phase.FINISH,),
}
"""Which fact is legal in which phases."""


STOPS = frozenset(StopReason) - {
    StopReason.COMPLETED,
    StopReason.FAILED,
    StopReason.CONSTRAINT_BREACH,
    StopReason.FINAL_ANSWER,
    StopReason.GENERATION_LENGTH,
}
"""What `Stopped` may say: the other reasons follow from what the policy did."""


class EpisodeMachine:
    """One episode.

    Invariant: `effect` is a function of the facts fed so far, in order, and of nothing else.
    """

    def __init__(self) -> None:
        self.phase = Phase.START
        self.effect: Effect = Ended()
        """What has to be done next."""
        self.ledger = Ledger(())
        self.window = Window()
        self.turn = 0
        """Index of the next reply."""
        self.reason: StopReason | None = None
        """Set as soon as the end is decided."""
        self.budget: Budget | None = None
        """The budget that ran out, where one did."""
        self.fault: FaultReport | None = None
        self.cut_by: StopReason | None = None
        """What cut the episode off after its end was decided, before it was scored."""
        self.scoring = Scoring.NOT_RUN
        self.outcome = Outcome.UNKNOWN
        self._started: EpisodeStarted | None = None
        self._sampling = SamplingParams()
        self._clamped = self._sampling
        self._purpose = Purpose.ACT
        self._last: TurnSampled | None = None
        self._calls: list[tuple[ToolCall, ToolResult]] = []
        self._compacting = Compacting(trigger_tokens=None, reserve_tokens=0)
        self._answer: str | None = None
        self._submitted: object | None = None

    # ------------------------------------------------------------------ facts in

    def feed(self, fact: Fact) -> Effect:
        """Take the next fact and give the next effect.

        Raises:
            OrderError: The fact is not legal in this phase.
            LawBreach: The fact contradicts what came before it.
        """
        kind = type(fact)
        if self.phase not in ACCEPTS[kind]:
            raise OrderError(
                f"{kind.__name__} cannot come in phase {self.phase!s}; it can in {', '.join(ACCEPTS[kind])}"
            )
        self._HANDLERS[kind](self, fact)
        self.effect = self._EFFECTS[self.phase](self)
        return self.effect

    @property
    def started(self) -> EpisodeStarted:
        """What decides the episode.

        Raises:
            OrderError: Nothing was fed yet.
        """
        if self._started is None:
            raise OrderError("the episode has not started: feed EpisodeStarted first")
        return self._started

    def _on_started(self, fact: EpisodeStarted) -> None:
        self._started = fact
        self._sampling = self._clamped = fact.sampling
        self.ledger = Ledger(fact.budgets)
        self._compacting = Compacting(trigger_tokens=fact.trigger_tokens, reserve_tokens=fact.reserve_tokens)
        self.window.begin(fact.messages)
        self.scoring = Scoring.NOT_RUN if fact.scoring_required else Scoring.NOT_REQUIRED
        self.phase = Phase.RENDER

    def _on_rendered(self, fact: PromptRendered) -> None:
        if (fact.final, fact.purpose) != (self.phase is Phase.LAST_RENDER, self._purpose):
            raise LawBreach(f"a prompt for {self._purpose} was due in phase {self.phase}, not {fact.purpose}")
        self.window.rendered(fact)
        if not fact.final:
            self.ledger.level(BudgetKind.CONTEXT_TOKENS, fact.prompt_length)
        if self.phase is Phase.LAST_RENDER:
            self._after_last_render()
            return
        if self._purpose is Purpose.SUMMARY:
            self._start_summary()
            return
        if self._compacting.begin_if_due(fact.prompt_length, self.ledger.remaining(BudgetKind.CONTEXT_TOKENS)):
            self.phase = Phase.COMPRESS
        else:
            self._admit()

    def _admit(self) -> None:
        """Let the reply be sampled, or end for want of budget."""
        clamp = self._clamp(self._sampling.max_tokens)
        if clamp.max_tokens >= 1:
            self._allow(clamp)
        else:
            assert clamp.bound_by is not None, "sampling parameters allow at least one token"
            self._end(End(reason_for(clamp.bound_by), clamp.bound_by))

    def _clamp(self, max_tokens: int) -> Clamp:
        exhausted = self.ledger.exhausted(BEFORE_SAMPLING)
        return Clamp(0, exhausted) if exhausted else self.ledger.clamp(max_tokens, self.window.prompt_length)

    def _allow(self, clamp: Clamp) -> None:
        if self._clamped.max_tokens != clamp.max_tokens:
            self._clamped = replace(self._sampling, max_tokens=clamp.max_tokens)
        self.phase = Phase.SAMPLE

    def _on_summary_asked(self, fact: SummaryAsked) -> None:
        self._compacting.ask_summary()
        self._purpose = Purpose.SUMMARY
        self.window.ask_summary(fact)
        self.phase = Phase.RENDER

    def _start_summary(self) -> None:
        """Let the summary be sampled, or go back to the compressor, which may not have one."""
        clamp = self._clamp(self.window.summary_max_tokens)
        if clamp.max_tokens >= 1:
            self._allow(clamp)
            return
        self._compacting.deny_summary(clamp.bound_by)
        self._purpose = Purpose.ACT
        self.phase = Phase.COMPRESS

    def _on_compacted(self, fact: Compacted) -> None:
        compaction = fact.compaction
        self._compacting.end()
        if compaction.outcome is CompactionOutcome.APPLIED:
            self.window.compact(compaction)
        if self.window.must_open:
            self.phase = Phase.RENDER
        else:
            self._admit()

    def _on_sampled(self, fact: TurnSampled) -> None:
        sample = self.effect
        assert isinstance(sample, Sample)
        self._check_sampled(fact, sample)
        self.window.sampled(fact)
        self.turn += 1
        self.ledger.charge(BudgetKind.TURNS, 1)
        self.ledger.charge(BudgetKind.SAMPLED_TOKENS, fact.sampled.n)
        self.ledger.charge(BudgetKind.COST, fact.cost_usd)
        self.ledger.level(BudgetKind.WALL_CLOCK, fact.elapsed_s)
        self.ledger.level(BudgetKind.CONTEXT_TOKENS, self.window.prompt_length + fact.sampled.n)
        if fact.purpose is Purpose.SUMMARY:
            self._purpose = Purpose.ACT
            self._compacting.take_summary(fact)
            self.phase = Phase.COMPRESS
            return
        self._last = fact
        self._compacting.replied()
        self.phase = Phase.ACT

    @staticmethod
    def _check_sampled(fact: TurnSampled, sample: Sample) -> None:
        if (fact.turn, fact.purpose) != (sample.turn, sample.purpose):
            raise LawBreach(
                f"turn {sample.turn} ({sample.purpose}) was asked for, but turn {fact.turn} ({fact.purpose}) came"
            )
        if (fact.seed, fact.sampling) != (sample.seed, sample.sampling):
            raise LawBreach(f"turn {fact.turn} was not sampled with the seed and parameters that were asked for")
        if fact.sampled.n > sample.sampling.max_tokens:
            raise LawBreach(
                f"turn {fact.turn}: {fact.sampled.n} tokens were sampled, {sample.sampling.max_tokens} were allowed"
            )

    def _on_acted(self, fact: ActionTaken) -> None:
        last = self._last
        assert last is not None
        asked = [call.id for call in last.parsed.calls]
        if fact.turn != last.turn or [result.call_id for result in fact.results] != asked:
            raise LawBreach(f"turn {last.turn} made the calls {asked}; what came of turn {fact.turn} answers others")
        self._calls += executed_calls(last.parsed, fact.results)
        self.ledger.charge(BudgetKind.TOOL_CALLS, sum(result.status.charged for result in fact.results))
        self.ledger.level(BudgetKind.WALL_CLOCK, fact.elapsed_s)
        self.window.observed(fact.messages)
        said = not last.parsed.calls and not last.parsed.errors
        self._answer = last.parsed.text if said else None
        if (ending := task_end(fact.results)) is not None:
            self._submitted = ending.value
        end = end_of_action(fact, last, self.started, self.ledger)
        if end is None:
            self.phase = Phase.RENDER
        else:
            self._end(end)

    def _on_stopped(self, fact: Stopped) -> None:
        if fact.reason not in STOPS:
            raise LawBreach(f"nothing outside the loop ends an episode as {fact.reason}")
        self.fault = fact.fault
        self.ledger.level(BudgetKind.WALL_CLOCK, fact.elapsed_s)
        if self.reason is not None:  # its end is decided: only what was still to come is cut off
            self.cut_by = fact.reason
            self.phase = Phase.FINISH
            return
        self.reason = fact.reason
        self.budget = next((budget for budget in self.ledger.budgets if budget.name == fact.budget), None)
        self._after_last_render()

    def _end(self, end: End) -> None:
        self.reason, self.budget = end
        if self.window.new_messages:
            self.phase = Phase.LAST_RENDER
        else:
            self._after_last_render()

    def _after_last_render(self) -> None:
        started = self.started
        graded = started.scoring_required and self.reason in started.grade_on
        self.phase = Phase.SCORE if graded else Phase.FINISH

    def _on_scored(self, fact: Scored) -> None:
        self.scoring, self.outcome = fact.scoring, fact.outcome
        self.fault = fact.fault or self.fault
        self.phase = Phase.FINISH

    def _on_ended(self, fact: EpisodeEnded) -> None:
        expected = self.ending(fact.elapsed_s)
        if fact != expected:
            raise LawBreach(f"the stored ending {fact} is not the one its facts lead to: {expected}")
        self.phase = Phase.ENDED

    # ---------------------------------------------------------------- effects out

    def _render(self) -> Render:
        return self.window.render(self.started.tools, self._purpose, final=self.phase is Phase.LAST_RENDER)

    def _compress(self) -> Compress:
        return self._compacting.effect(self.window, self.ledger.tightest(BudgetKind.CONTEXT_TOKENS))

    def _sample(self) -> Sample:
        summary = self._purpose is Purpose.SUMMARY
        return Sample(
            prompt_ids=self.window.segment_ids,
            window=self.window.summary_messages if summary else self.window.messages,
            tools=() if summary else self.started.tools,
            sampling=self._clamped,
            seed=call_seed(self.started.seed, self.turn),
            turn=self.turn,
            purpose=self._purpose,
        )

    def _act(self) -> Act:
        assert self._last is not None
        left = self.ledger.remaining(BudgetKind.TOOL_CALLS)
        return Act(
            turn=self._last.turn,
            parsed=self._last.parsed,
            allowed_calls=None if left == float("inf") else int(left),
        )

    def _score(self) -> Score:
        assert self.reason is not None
        answer = self._answer
        if answer is None and isinstance(self._submitted, str):
            answer = self._submitted
        return Score(reason=self.reason, answer=answer, submitted=self._submitted, calls=tuple(self._calls))

    def ending(self, elapsed_s: float) -> EpisodeEnded:
        """Make the last fact.

        Raises:
            OrderError: The end is not decided yet.
        """
        if self.reason is None:
            raise OrderError("the episode has no ending yet")
        return EpisodeEnded(
            reason=self.reason,
            terminated=self.reason.terminated,
            truncated=not self.reason.terminated,
            budget=self.budget.name if self.budget else None,
            scoring=self.scoring,
            outcome=self.outcome,
            fault=self.fault.domain if self.fault else FaultDomain.NONE,
            cut_by=self.cut_by,
            budgets=self.ledger.states(),
            elapsed_s=elapsed_s,
        )

    _HANDLERS: ClassVar[dict[type[Any], Callable[[Any, Any], None]]] = {
        EpisodeStarted: _on_started,
        PromptRendered: _on_rendered,
        SummaryAsked: _on_summary_asked,
        Compacted: _on_compacted,
        TurnSampled: _on_sampled,
        ActionTaken: _on_acted,
        Stopped: _on_stopped,
        Scored: _on_scored,
        EpisodeEnded: _on_ended,
    }

    _EFFECTS: ClassVar[dict[Phase, Callable[[Any], Effect]]] = {
        Phase.START: lambda _: Ended(),
        Phase.RENDER: _render,
        Phase.LAST_RENDER: _render,
        Phase.COMPRESS: _compress,
        Phase.SAMPLE: _sample,
        Phase.ACT: _act,
        Phase.SCORE: _score,
        Phase.FINISH: lambda _: Finish(),
        Phase.ENDED: lambda _: Ended(),
    }
