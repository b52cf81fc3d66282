"""The shell of one episode: performs the machine's effects, feeds back what came of them, and writes it down.

Owned here: the deadline, and with it the end of all that the episode started. Not owned: the rules (`engine.machine`),
the policy, and what actions work on (`envs.world`).
Both doors use it: the asynchronous environment and the collector submit replies; everything between two replies
happens here.

A fact is durable before anything outside this process happens because of it: a reply is asked for, tools are run, a
compressor or a grader is called, an end is reported. Rendering touches nothing, so the facts on both sides of it share
one write. Whatever gives way, the episode ends with a reason of its own (law 4), and
nothing it started is alive afterwards (law 12).
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import cast

from agentenv.core.boundary import is_its_own
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.lifetime import AsyncResource, finish
from agentenv.core.policy import Reply, SampleRequest
from agentenv.core.store import AttemptKey
from agentenv.engine.effects import Act, Compress, Ended, Finish, Render, Sample, Score
from agentenv.engine.ledger import Ledger, reason_for
from agentenv.engine.machine import EpisodeMachine, Phase
from agentenv.engine.observation import observation
from agentenv.envs.compaction import compact
from agentenv.envs.faults import attributed, report_of, without_secrets
from agentenv.envs.grading import grade
from agentenv.envs.opening import opening_fact
from agentenv.envs.plan import EpisodeOptions, EpisodeParts, EpisodePlan
from agentenv.envs.prompting import make_prompt
from agentenv.envs.replies import turn_of
from agentenv.envs.rules import RuleWatch
from agentenv.envs.world import World
from agentenv.errors import (
    CompressorFault,
    ConfigError,
    Fault,
    HarnessFault,
    OrderError,
    PolicyServerFault,
    PromptTooLong,
    SandboxFault,
    TaskFault,
    ToolFault,
)
from agentenv.records.axes import BudgetKind, BudgetOwner, StopReason
from agentenv.records.codec import settled
from agentenv.records.facts import (
    ActionTaken,
    Compacted,
    EpisodeEnded,
    EpisodeStarted,
    Fact,
    PromptRendered,
    Stopped,
    SummaryAsked,
)
from agentenv.records.messages import Message, ToolResult
from agentenv.records.tokens import pack_ids
from agentenv.toolkit.toolbox import Toolbox

_log = logging.getLogger(__name__)


class Episode(AsyncResource):
    """One attempt at one episode, from `begin` to its end.

    Use: ``request = await episode.begin()``; while it is not None, sample a reply to it and
    ``request = await episode.submit(reply)``. Where sampling fails, ``await episode.fail(error)``.
    """

    def __init__(
        self, plan: EpisodePlan, parts: EpisodeParts, options: EpisodeOptions, *, keep_facts: bool = False
    ) -> None:
        """Put the episode together; nothing is started.

        Raises:
            UsageError: The task cannot be played: two tools of one name, two budgets of one kind and owner, a checker
                that nobody knows, a field of another type than it must have.
        """
        self.plan = plan
        self.key = AttemptKey(plan.episode_id, plan.attempt)
        self.machine = EpisodeMachine()
        self.deadline = Deadline("the episode")
        self.last_action: ActionTaken | None = None
        self.ending: EpisodeEnded | None = None
        """The last fact, once the episode has ended."""
        self.error: Exception | None = None
        """What ended it by a fault."""
        self.unclosed: str | None = None
        """Why something it started could not be closed, once `aclose` has tried. Its record stands all the same."""
        self.facts: list[Fact] = []
        """Every fact so far, where ``keep_facts`` asks for it; else empty: the journal has them."""
        self._keep_facts = keep_facts
        self._unwritten: list[Fact] = []
        """What the machine was fed, and the journal does not have yet."""
        self._parts = parts
        self._options = options
        toolbox = Toolbox(plan.task.tools)
        specs = toolbox.specs
        opening = settled(opening_fact(plan, parts, options, specs), of=f"task {plan.task.id}")
        assert isinstance(opening, EpisodeStarted)
        # Episodes share their tools' schemas, which may be long, instead of each keeping the copy that was read.
        self._opening = replace(opening, tools=specs) if opening.tools == specs else opening
        Ledger(self._opening.budgets)
        rules = RuleWatch(self._opening.constraints, parts.checker, parts.renderer.tokenizer)
        self._world = World(plan, parts, options, toolbox=toolbox, rules=rules)
        self._began_at = 0.0

    # ------------------------------------------------------------------- the loop

    async def begin(self) -> SampleRequest | None:
        """Start the episode and go on to its first prompt; None if it ended before.

        Raises:
            OrderError: It was begun before.
            HarnessFault: The journal cannot be written.
        """
        if self._began_at:
            raise OrderError(f"episode {self.plan.episode_id} was begun before")
        self._began_at = time.monotonic()
        fault: Exception | None = None
        started = self._opening
        self._set_deadline(started)
        try:
            async with self.deadline.enforce():
                await self._world.open(self.deadline)
            started = self._completed(started)
        except BaseException as error:
            if not is_its_own(error):
                raise
            fault = attributed(error, SandboxFault, "starting the episode")
        self._take(started)
        if fault is not None:
            self._stop_for(fault, SandboxFault)
        return await self._advance()

    async def submit(self, reply: Reply) -> SampleRequest | None:
        """Take the reply to the last request and go on to the next prompt; None when the episode has ended.

        Raises:
            OrderError: No reply was asked for.
            HarnessFault: The journal cannot be written.
        """
        sample = self.machine.effect
        if not isinstance(sample, Sample):
            raise OrderError(f"episode {self.plan.episode_id} asks for no reply (phase {self.machine.phase})")
        try:
            fact = turn_of(
                sample,
                reply,
                renderer=self._parts.renderer,
                identity=self._parts.identity,
                elapsed_s=self._elapsed(),
            )
        except BaseException as error:
            if not is_its_own(error):
                raise
            self._stop_for(attributed(error, HarnessFault, "the renderer"), PolicyServerFault)
        else:
            self._take(fact)
        return await self._advance()

    async def fail(self, error: Exception) -> None:
        """End the episode because no reply could be had: a deadline, a prompt too long, a fault, or our own error."""
        if isinstance(error, PromptTooLong):
            self._take(
                Stopped(
                    reason=StopReason.CONTEXT_OVERFLOW,
                    budget=f"{BudgetOwner.COLLECTOR}.{BudgetKind.CONTEXT_TOKENS}",
                    elapsed_s=self._elapsed(),
                )
            )
        else:
            self._stop_for(error, PolicyServerFault)
        await self._advance()

    async def stop(self, reason: StopReason) -> None:
        """End the episode from outside (``cancelled``, ``collector_pause``), if it has begun and not ended.

        One that is not scored yet is not scored any more; one that only lacks its last fact gets it.
        """
        if self.machine.phase is Phase.START:
            return
        if self.machine.phase not in (Phase.FINISH, Phase.ENDED):
            self._take(Stopped(reason=reason, elapsed_s=self._elapsed()))
        await self._advance()

    async def aclose(self) -> None:
        """End everything the episode started. May be called twice.

        What cannot be closed is said in `unclosed`: the episode's end is on record already, and no sibling's affair.
        """
        if not await finish(self._close(), self._options.grace_s):
            self._say_unclosed(f"closing took longer than {self._options.grace_s:g} s and was given up")

    async def _close(self) -> None:
        try:
            await self._world.aclose()
        except BaseException as error:
            if not is_its_own(error):
                raise
            self._say_unclosed(f"closing raised {type(error).__name__}: {error}")

    def _say_unclosed(self, why: str) -> None:
        self.unclosed = without_secrets(why)
        _log.warning("episode %s, attempt %d: %s", self.plan.episode_id, self.plan.attempt, self.unclosed)

    async def _advance(self) -> SampleRequest | None:
        """Perform effects until a reply is needed or nothing is left."""
        while True:
            effect = self.machine.effect
            if isinstance(effect, Render):
                await self._perform(effect)
                continue
            if isinstance(effect, Finish):
                self.ending = self.machine.ending(self._elapsed())
                self._take(self.ending)
                continue
            await self._write()
            match effect:
                case Sample():
                    return self._request(effect)
                case Ended():
                    return None
                case Score():
                    self._take(await grade(effect, self.plan.task, self._world.sandbox))
                case _:
                    await self._perform(effect)

    async def _perform(self, effect: Render | Compress | Act) -> None:
        """Perform one effect of the running episode; a failure ends the episode by whose fault it was."""
        domain: type[Fault] = HarnessFault
        try:
            match effect:
                case Render():
                    domain = TaskFault
                    fact: Fact = await self._render(effect)
                case Compress():
                    domain = CompressorFault
                    fact = await self._compress(effect)
                case Act():
                    domain = ToolFault
                    fact = await self._act(effect)
        except ConfigError as error:  # a template that refuses the task's messages: no other try helps
            self._stop_for(domain.permanent(str(error)), domain)
        except BaseException as error:
            if not is_its_own(error):
                raise
            self._stop_for(attributed(error, domain, type(effect).__name__.lower()), domain)
        else:
            self._take(fact)

    def _stop_for(self, error: Exception, domain: type[Fault]) -> None:
        """Take what ended the episode. A deadline is known by the object that fired (law 12)."""
        if isinstance(error, DeadlineReached):
            if error.deadline is self.deadline:
                budget = self.machine.ledger.tightest(BudgetKind.WALL_CLOCK)
                assert budget is not None, "only a wall-clock budget gives the episode a deadline"
                self._take(Stopped(reason=reason_for(budget), budget=budget.name, elapsed_s=self._elapsed()))
                return
            error = domain(str(error))
        self.error = error
        self._take(Stopped(reason=StopReason.FAULT, fault=report_of(error), elapsed_s=self._elapsed()))

    def _take(self, fact: Fact) -> None:
        """Take the next fact. `_write` makes it durable."""
        self.machine.feed(fact)
        self._unwritten.append(fact)
        if self._keep_facts:
            self.facts.append(fact)

    async def _write(self) -> None:
        """Make durable what was taken. Cancelled, it has written nothing, and the next call writes all of it."""
        if self._unwritten:
            await self._parts.writer.append(self.key, *self._unwritten)
            self._unwritten.clear()

    def _elapsed(self) -> float:
        return time.monotonic() - self._began_at

    # ------------------------------------------------------------------- opening

    def _set_deadline(self, started: EpisodeStarted) -> None:
        limits = [b.limit for b in started.budgets if b.kind is BudgetKind.WALL_CLOCK]
        if limits:
            self.deadline = Deadline("the episode", self._began_at + min(limits))

    def _completed(self, started: EpisodeStarted) -> EpisodeStarted:
        """Add what is only known once the sandbox runs.

        Raises:
            UsageError: A provider or a checker gave what cannot be recorded.
        """
        watched, workspace, network = self._world.rules.watched, self._world.workspace, self._world.network
        if not (watched or workspace or network):
            return started
        whole = replace(started, watched=watched, workspace=workspace, network=network)
        return cast("EpisodeStarted", settled(whole, of="the provider of sandboxes or a checker"))

    # ------------------------------------------------------------------- effects

    async def _render(self, effect: Render) -> PromptRendered:
        began = time.perf_counter()
        prompt = await make_prompt(effect, self._parts.renderer)
        return PromptRendered(
            segment=prompt.segment,
            new_segment_reason=prompt.reason,
            appended_ids=pack_ids(prompt.appended),
            prompt_length=len(prompt.before) + len(prompt.appended),
            purpose=effect.purpose,
            final=effect.final,
            visibility=await self._world.rules.see(prompt.segment, prompt.before, prompt.appended, effect.purpose),
            rendering_s=time.perf_counter() - began,
        )

    async def _compress(self, effect: Compress) -> Compacted | SummaryAsked:
        fact = await compact(
            effect,
            compressor=self._parts.compressor,
            renderer=self._parts.renderer,
            tools=self.machine.started.tools,
            constraints=self.machine.started.constraints,
            deadline=self.deadline.sooner(
                self._options.compress_timeout_s,
                f"compressing (compress_timeout_s: {self._options.compress_timeout_s:g})",
            ),
        )
        if isinstance(fact, Compacted):
            self._world.rules.compacted(fact.compaction)
        return fact

    def _request(self, effect: Sample) -> SampleRequest:
        plan = self.plan
        return SampleRequest(
            prompt_ids=effect.prompt_ids,
            messages=effect.window,
            tools=effect.tools,
            sampling=effect.sampling,
            seed=effect.seed,
            request_id=f"{plan.episode_id}.{plan.attempt}.{effect.turn}",
            turn=effect.turn,
            purpose=effect.purpose,
        )

    async def _act(self, effect: Act) -> ActionTaken:
        began = time.perf_counter()
        deed = await self._world.act(effect, self.deadline)
        fact = ActionTaken(
            turn=effect.turn,
            results=deed.results,
            messages=self._observation(effect, deed.results),
            breaches=deed.breaches,
            watched=self._world.rules.watched,
            workspace=deed.workspace,
            workspace_too_large=self._world.too_large,
            tool_s=time.perf_counter() - began,
            elapsed_s=self._elapsed(),
        )
        if fact.watched or deed.workspace is not None:
            fact = cast("ActionTaken", settled(fact, of="the provider of sandboxes or a checker"))
        self.last_action = fact
        return fact

    def _observation(self, effect: Act, results: tuple[ToolResult, ...]) -> tuple[Message, ...]:
        shows = self._options.show_budgets == "tool_result"
        charged = sum(result.status.charged for result in results)
        return observation(
            first_id=self.machine.window.n_messages,
            turn=effect.turn,
            parsed=effect.parsed,
            results=results,
            ends_on_text=self.machine.started.ends_on_text,
            left=self.machine.ledger.states(more_calls=charged) if shows else (),
        )
