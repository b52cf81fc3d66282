"""Many episodes at once: bounded, isolated from one another, retried only where infrastructure gave way."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

import anyio

from agentenv.core.boundary import is_its_own
from agentenv.core.lifetime import first_of
from agentenv.core.policy import Policy
from agentenv.core.store import AttemptKey
from agentenv.core.task import Suite, Task
from agentenv.envs.episode import Episode
from agentenv.envs.plan import EpisodeOptions, EpisodeParts, EpisodePlan
from agentenv.errors import HarnessFault
from agentenv.records.axes import FaultDomain
from agentenv.records.episode import FaultReport
from agentenv.records.facts import EpisodeEnded
from agentenv.records.messages import Message
from agentenv.rollout.observing import Observer, SafeObserver
from agentenv.rollout.runner import run_episode
from agentenv.rollout.schedule import Progress, Slot, is_done
from agentenv.rollout.unmade import unmade

Examples = tuple[tuple[Message, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOptions:
    """How many episodes, and how many at once."""

    tasks: int
    group_size: int = 1
    concurrency: int = 16
    seed: int = 0
    level: int = 1
    shots: int = 0
    """Worked examples in every prompt."""
    max_attempts: int = 3
    """Attempts per episode in this call, where infrastructure gave way. A bad answer is never tried again."""
    reply_timeout_s: float = 600.0
    retry_wait_s: float = 1.0
    """Before the second attempt; doubles with each further one."""


@dataclass(slots=True)
class Tally:
    """What came of a collection."""

    planned: int = 0
    done_before: int = 0
    done: int = 0
    faulted: int = 0
    """Episodes that no attempt brought to an end without fault."""
    attempts: int = 0
    reasons: dict[str, int] = field(default_factory=dict[str, int])
    stopped_by: str | None = None
    """Why no further episodes were begun, where one fault speaks for all."""
    unclosed: list[str] = field(default_factory=list[str])
    """What could not be closed after its episode had ended: one line per attempt. Their records stand all the same."""

    @property
    def complete(self) -> bool:
        """Whether every planned episode is done."""
        return self.done_before + self.done == self.planned


class Collector:
    """Collects the episodes of one run."""

    def __init__(
        self,
        *,
        suite: Suite,
        policy: Policy,
        parts: EpisodeParts,
        episode_options: EpisodeOptions,
        options: CollectOptions,
        observer: Observer | None = None,
    ) -> None:
        self._suite = suite
        self._policy = policy
        self._parts = parts
        self._episode_options = episode_options
        self._options = options
        self._observer = SafeObserver(observer)
        self._halted: str | None = None
        self._task = functools.lru_cache(options.concurrency)(self._make_task)
        """Remembers the last tasks, for the members of a group and for further attempts."""

    async def run(self, todo: Iterator[Slot], before: Progress) -> Tally:
        """Run every episode that is not done yet.

        Cancelling this ends all episodes under way as ``cancelled``, on record, and raises.

        Raises:
            HarnessFault: The journal cannot be written; what was acknowledged is kept.
            ConfigError: The suite has not as many worked examples.
        """
        planned = list(todo)
        left = [slot for slot in planned if slot.episode_id not in before.done]
        tally = Tally(planned=len(planned), done_before=len(planned) - len(left))
        shots = self._options.shots
        examples = tuple(self._suite.demonstrations(shots, self._options.level)) if shots else ()
        queue = iter(left)
        try:
            async with anyio.create_task_group() as group:
                for _ in range(min(self._options.concurrency, len(left))):
                    group.start_soon(self._work, queue, before, examples, tally)
        except BaseExceptionGroup as errors:
            raise first_of(errors) from errors
        if (lost := len(left) - tally.done - tally.faulted) != 0:
            raise HarnessFault(
                f"{lost} of {len(left)} episodes were neither done nor failed: a worker ended early without a word. "
                "Resuming the run collects them; please report this"
            )
        tally.stopped_by = self._halted
        return tally

    async def _work(self, queue: Iterator[Slot], before: Progress, examples: Examples, tally: Tally) -> None:
        for slot in queue:
            if self._halted is None:
                await self._episode(slot, before.attempts.get(slot.episode_id, 0), examples, tally)
            else:
                tally.faulted += 1

    async def _episode(self, slot: Slot, tried: int, examples: Examples, tally: Tally) -> None:
        """Attempt one episode until it is done, or the attempts of this call are used up."""
        for n in range(self._options.max_attempts):
            if n:
                await anyio.sleep(self._options.retry_wait_s * 2 ** (n - 1))
            ending, retryable = await self._attempt(slot, tried + n + 1, examples, tally)
            tally.attempts += 1
            if ending is not None:
                tally.reasons[ending.reason] = tally.reasons.get(ending.reason, 0) + 1
                if is_done(ending):
                    tally.done += 1
                    return
            if not retryable or self._halted is not None:
                break
        tally.faulted += 1

    async def _attempt(
        self, slot: Slot, attempt: int, examples: Examples, tally: Tally
    ) -> tuple[EpisodeEnded | None, bool]:
        """Run one attempt; say how it ended and whether trying again may help."""
        self._observer.began(slot, attempt)
        ending: EpisodeEnded | None = None
        fault: FaultReport | None = None
        try:
            ending, fault = await self._play(slot, attempt, examples, tally)
        finally:
            self._observer.ended(slot, ending)
        if fault is not None and not fault.retryable and fault.domain is FaultDomain.POLICY_SERVER:
            self._halted = fault.message  # it would meet every further episode as well
        return ending, fault is None or fault.retryable

    async def _play(
        self, slot: Slot, attempt: int, examples: Examples, tally: Tally
    ) -> tuple[EpisodeEnded | None, FaultReport | None]:
        try:
            episode, policy = self._made(slot, attempt, examples)
        except BaseException as error:
            if not is_its_own(error):
                raise
            return await self._record_unmade(slot, attempt, error)
        await run_episode(
            episode,
            policy,
            reply_timeout_s=self._options.reply_timeout_s,
            grace_s=self._episode_options.grace_s,
            on_reply=self._observer.replied,
        )
        if episode.unclosed is not None:
            tally.unclosed.append(f"{slot.episode_id}, attempt {attempt}: {episode.unclosed}")
        return episode.ending, episode.machine.fault

    def _make_task(self, task_seed: int) -> Task:
        return self._suite.task(task_seed, self._options.level)

    def _made(self, slot: Slot, attempt: int, examples: Examples) -> tuple[Episode, Policy]:
        task = self._task(slot.task_seed)
        plan = EpisodePlan(
            episode_id=slot.episode_id,
            attempt=attempt,
            suite=self._suite.name,
            task=task,
            task_seed=slot.task_seed,
            level=self._options.level,
            group_id=slot.group_id,
            member=slot.member,
            seed=slot.seed,
            demonstrations=examples,
        )
        return Episode(plan, self._parts, self._episode_options), self._policy.for_task(task, slot.seed)

    async def _record_unmade(
        self, slot: Slot, attempt: int, error: BaseException
    ) -> tuple[EpisodeEnded, FaultReport | None]:
        facts = unmade(slot, attempt, suite=self._suite.name, level=self._options.level, error=error)
        await self._parts.writer.append(AttemptKey(slot.episode_id, attempt), *facts)
        return facts.ending, facts.stopped.fault
