"""A shell that answers the machine's effects with drawn facts: any legal episode, without clock or I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agentenv.engine.effects import Act, Compress, Effect, Ended, Finish, Render, Sample, Score
from agentenv.engine.machine import EpisodeMachine
from agentenv.engine.observation import observation
from agentenv.records.axes import (
    BudgetKind,
    BudgetOwner,
    CallStatus,
    CompactionOutcome,
    Distribution,
    Evidence,
    Outcome,
    Scoring,
    StopReason,
)
from agentenv.records.axes import (
    Finish as EngineFinish,
)
from agentenv.records.budgets import Budget
from agentenv.records.compaction import Compaction, Edit
from agentenv.records.episode import RewardComponent
from agentenv.records.facts import (
    ActionTaken,
    Compacted,
    EpisodeStarted,
    Fact,
    PromptRendered,
    Scored,
    Stopped,
    SummaryAsked,
    TurnSampled,
)
from agentenv.records.messages import Message, ParsedTurn, ParseError, Role, TaskEnd, ToolCall, ToolResult
from agentenv.records.tokens import LogprobSpan, Sampled, SamplingParams, VersionSpan, pack_ids, pack_logprobs
from hypothesis import strategies as st


def started(**changes: Any) -> EpisodeStarted:
    fields: dict[str, Any] = {
        "episode_id": "e000000.0",
        "attempt": 1,
        "suite": "s",
        "task_id": "s/0",
        "task_sha256": "0" * 64,
        "task_seed": 0,
        "level": 1,
        "group_id": "g000000",
        "member": 0,
        "seed": 7,
        "messages": (
            Message(id="m0", role=Role.SYSTEM, text="rules"),
            Message(id="m1", role=Role.USER, text="old"),
            Message(id="m2", role=Role.USER, text="task", pinned=True),
        ),
        "tools": (),
        "budgets": (),
        "constraints": (),
        "context_window": None,
        "sampling": SamplingParams(max_tokens=8),
        "ends_on_text": True,
        "scoring_required": True,
        "grade_on": tuple(sorted(set(StopReason) - {StopReason.FAULT, StopReason.CANCELLED})),
    }
    return EpisodeStarted(**{**fields, **changes})


def reply(ids: list[int]) -> Sampled:
    n = len(ids)
    return Sampled(
        completion_ids=pack_ids(ids),
        logprobs=pack_logprobs([-0.5] * n),
        logprob_spans=(LogprobSpan(start=0, end=n, distribution=Distribution.MODEL, evidence=Evidence.PROBED),),
        version_spans=(VersionSpan(start=0, end=n, version=None),),
    )


def turn(effect: Sample, *, n: int = 3, calls: int = 0, errors: int = 0, **changes: Any) -> TurnSampled:
    parsed = ParsedTurn(
        text="hm",
        calls=tuple(ToolCall(id=f"t{effect.turn}c{k}", name="f", arguments={}) for k in range(calls)),
        errors=tuple(ParseError(reason="no", excerpt="x") for _ in range(errors)),
    )
    fields: dict[str, Any] = {
        "turn": effect.turn,
        "purpose": effect.purpose,
        "sampled": reply(list(range(100, 100 + min(n, effect.sampling.max_tokens)))),
        "sampling": effect.sampling,
        "seed": effect.seed,
        "finish": EngineFinish.STOP,
        "stop_token_id": None,
        "parsed": parsed,
    }
    return TurnSampled(**{**fields, **changes})


def rendered(effect: Render, *, appended: int = 5, declines: bool = False, final: bool | None = None) -> PromptRendered:
    opens = effect.previous_ids is None or declines
    before = 0 if opens else len(effect.previous_ids or ())
    running = effect.previous_ids is not None
    return PromptRendered(
        segment=effect.segment + 1 if (declines and running) else effect.segment,
        new_segment_reason=(effect.reason or "declined") if opens else None,
        appended_ids=pack_ids(range(1, appended + 1)),
        prompt_length=before + appended,
        purpose=effect.purpose,
        final=effect.final if final is None else final,
    )


def acted(machine: EpisodeMachine, effect: Act, **changes: Any) -> ActionTaken:
    allowed = len(effect.parsed.calls) if effect.allowed_calls is None else effect.allowed_calls
    results = tuple(
        ToolResult(
            call_id=call.id,
            name=call.name,
            status=CallStatus.OK if k < allowed else CallStatus.REFUSED,
            text="r",
            ends=changes.get("ends") if k == 0 else None,
        )
        for k, call in enumerate(effect.parsed.calls)
    )
    return ActionTaken(
        turn=effect.turn,
        results=results,
        messages=observation(
            first_id=machine.window.n_messages,
            turn=effect.turn,
            parsed=effect.parsed,
            results=results,
            ends_on_text=machine.started.ends_on_text,
            left=(),
        ),
        elapsed_s=changes.get("elapsed_s", 0.0),
    )


def drop_oldest(effect: Compress) -> tuple[Edit, ...]:
    """Keep system and pinned messages and the newest turn; drop the rest."""
    turns = [message.turn for message in effect.window if message.turn is not None]
    newest = max(turns, default=None)
    keep = [m.role is Role.SYSTEM or m.pinned or (m.turn is not None and m.turn == newest) for m in effect.window]
    return tuple(
        Edit(op="keep" if kept else "drop", message_id=message.id)
        for kept, message in zip(keep, effect.window, strict=True)
    )


def compacted(effect: Compress, *, applied: bool) -> Compacted:
    return Compacted(
        compaction=Compaction(
            id=effect.id,
            compressor="puppet",
            trigger=effect.trigger,
            budget_tokens=effect.budget_tokens,
            edits=drop_oldest(effect),
            tokens_before=effect.tokens,
            tokens_after=min(effect.tokens - 1, effect.budget_tokens) if applied else None,
            outcome=CompactionOutcome.APPLIED if applied else CompactionOutcome.FAILED,
            reason=None if applied else "would not fit",
            summary_turns=effect.summary_turns,
        )
    )


def scored() -> Scored:
    part = RewardComponent(name="answer", value=1.0, source="environment")
    return Scored(scoring=Scoring.SCORED, components=(part,), outcome=Outcome.SUCCESS)


@dataclass
class Puppet:
    """Runs one episode with facts drawn from hypothesis."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    machine: EpisodeMachine = field(default_factory=EpisodeMachine)
    facts: list[Fact] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    elapsed_s: float = 0.0

    def feed(self, fact: Fact) -> None:
        self.facts.append(fact)
        self.effects.append(self.machine.feed(fact))

    def run(self, start: EpisodeStarted, *, max_effects: int = 200) -> None:
        self.feed(start)
        for _ in range(max_effects):
            effect = self.machine.effect
            if isinstance(effect, Ended):
                return
            self.feed(self.answer(effect))
        self.feed(Stopped(reason=StopReason.CANCELLED, elapsed_s=self.elapsed_s))
        while not isinstance(self.machine.effect, Ended):
            self.feed(self.answer(self.machine.effect))

    def answer(self, effect: Effect) -> Fact:
        self.elapsed_s += self.draw(st.sampled_from([0.0, 0.5, 2.0]))
        match effect:
            case Render():
                if self.draw(st.integers(0, 40)) == 0:
                    return Stopped(reason=StopReason.CANCELLED, elapsed_s=self.elapsed_s)
                return rendered(
                    effect,
                    appended=self.draw(st.integers(1, 30)),
                    declines=effect.previous_ids is not None and self.draw(st.integers(0, 9)) == 0,
                )
            case Compress():
                if effect.denied is not None:
                    return compacted(effect, applied=False)
                kind = self.draw(st.sampled_from(["applied", "failed", "summary"]))
                if kind == "summary" and effect.summary is None:
                    asked = Message(id="x0", role=Role.USER, text="summarise")
                    return SummaryAsked(messages=(asked,), max_tokens=4)
                return compacted(effect, applied=kind == "applied")
            case Sample():
                finish = self.draw(st.sampled_from([EngineFinish.STOP] * 6 + [EngineFinish.LENGTH]))
                return turn(
                    effect,
                    n=self.draw(st.integers(1, 9)),
                    calls=self.draw(st.sampled_from([0, 1, 1, 1, 2, 3])),
                    errors=self.draw(st.sampled_from([0, 0, 0, 1])),
                    finish=finish,
                    elapsed_s=self.elapsed_s,
                )
            case Act():
                ends = self.draw(st.sampled_from([None] * 9 + [TaskEnd.COMPLETED]))
                return acted(self.machine, effect, ends=ends, elapsed_s=self.elapsed_s)
            case Score():
                return scored()
            case Finish():
                return self.machine.ending(self.elapsed_s)
            case _:
                raise AssertionError(effect)


def budgets() -> st.SearchStrategy[tuple[Budget, ...]]:
    limits = {
        BudgetKind.TURNS: st.integers(1, 6),
        BudgetKind.SAMPLED_TOKENS: st.integers(1, 40),
        BudgetKind.CONTEXT_TOKENS: st.integers(10, 120),
        BudgetKind.TOOL_CALLS: st.integers(1, 5),
        BudgetKind.WALL_CLOCK: st.integers(1, 20),
        BudgetKind.COST: st.sampled_from([0.5, 1.0]),
    }
    one = st.sampled_from(list(limits)).flatmap(
        lambda kind: st.builds(Budget, kind=st.just(kind), limit=limits[kind], owner=st.sampled_from(list(BudgetOwner)))
    )
    return st.lists(one, max_size=5, unique_by=lambda budget: budget.name).map(tuple)


def starts() -> st.SearchStrategy[EpisodeStarted]:
    return st.builds(
        lambda b, text, scoring, trigger, reserve: started(
            budgets=b, ends_on_text=text, scoring_required=scoring, trigger_tokens=trigger, reserve_tokens=reserve
        ),
        budgets(),
        st.booleans(),
        st.booleans(),
        st.sampled_from([None, 20, 50]),
        st.integers(1, 8),
    )
