"""The asynchronous door: ``reset``, ``step``, ``aclose`` over one `Episode` at a time."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentenv.core.lifetime import AsyncResource
from agentenv.core.policy import SampleRequest
from agentenv.core.renderer import Tokenizer
from agentenv.core.task import Suite
from agentenv.engine.fold import fold
from agentenv.envs.actions import Action, reply_of
from agentenv.envs.episode import Episode
from agentenv.envs.plan import EpisodeOptions, EpisodeParts, EpisodePlan
from agentenv.errors import ConfigError, OrderError
from agentenv.records.axes import BudgetKind, Purpose, Scoring, StopReason
from agentenv.records.budgets import BudgetState
from agentenv.records.episode import EpisodeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the environment shows."""

    prompt_ids: array[int]
    """(P,) the prompt that the next reply continues; after the end, the last observation."""
    budgets: tuple[BudgetState, ...]
    """What is left, always."""
    turn: int
    """Index of the reply that is due."""
    max_tokens: int
    """Longest reply the budgets allow; 0 after the end."""
    purpose: Purpose
    """``summary`` when a compressor asks the policy to write one."""


class StepResult(NamedTuple):
    """Gymnasium's five values, in its order."""

    observation: Observation
    reward: float | None
    """Of this step; None where nothing was scored in it."""
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    """For diagnosis; nothing the harness needs lives in it."""


class AsyncAgentEnv(AsyncResource):
    """An environment over the tasks of one suite; the seed decides the task.

    Use: ``observation, info = await env.reset(seed=0)``, then ``await env.step(action)`` until it says terminated or
    truncated; then `reset` again.
    """

    def __init__(
        self, suite: Suite, parts: EpisodeParts, options: EpisodeOptions, *, level: int = 1, shots: int = 0
    ) -> None:
        self._suite = suite
        self._parts = parts
        self._options = options
        self._level = level
        self._demonstrations = tuple(suite.demonstrations(shots, level)) if shots else ()
        self._episode: Episode | None = None
        self._request: SampleRequest | None = None
        self._n_episodes = 0

    async def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; one that is under way ends as ``cancelled``.

        Args:
            seed: Decides the task, and with it everything the environment does. None: the next one.
            options: Not used; for Gymnasium's sake.

        Raises:
            Fault: The episode could not be begun (no sandbox, say); its record says so too.
            ConfigError: It ended before its first prompt could be answered: the prompt does not fit the context, say.
        """
        del options
        await self._leave()
        number = self._n_episodes
        self._n_episodes += 1
        task_seed = number if seed is None else seed
        self._episode = Episode(
            EpisodePlan(
                episode_id=f"env{number:06d}",
                attempt=1,
                suite=self._suite.name,
                task=self._suite.task(task_seed, self._level),
                task_seed=task_seed,
                level=self._level,
                group_id=f"g{task_seed:06d}",
                member=number,
                seed=number,
                demonstrations=self._demonstrations,
            ),
            self._parts,
            self._options,
            keep_facts=True,
        )
        self._request = await self._episode.begin()
        if self._request is None and self._episode.error is not None:
            raise self._episode.error
        if self._request is None:
            raise ConfigError(self._ended_at_once(self._episode))
        return self._observation(), self._info()

    async def step(self, action: Action) -> StepResult:
        """Take a reply and carry out its action.

        Args:
            action: See `envs.actions.Action`.

        Raises:
            OrderError: Before `reset`, or after the episode ended.
            UsageError: The action has not the form it must have; the episode is as before.
        """
        episode = self._running()
        if self._request is None:
            raise OrderError("the episode has ended: call reset()")
        self._request = await episode.submit(reply_of(action, self._request, self._parts.renderer))
        reason = episode.machine.reason if self._request is None else None
        return StepResult(
            observation=self._observation(),
            reward=self.record.reward if reason is not None else None,
            terminated=reason is not None and reason.terminated,
            truncated=reason is not None and not reason.terminated,
            info=self._info(),
        )

    @property
    def record(self) -> EpisodeRecord:
        """The record of the episode so far.

        Raises:
            OrderError: Before `reset`.
        """
        return fold(self._running().facts)

    @property
    def tokenizer(self) -> Tokenizer:
        """Vocabulary of the observations and actions."""
        return self._parts.renderer.tokenizer

    def text(self) -> str:
        """Decode the observation."""
        return self.tokenizer.decode(self._running().machine.window.segment_ids)

    async def aclose(self) -> None:
        """End the episode under way. May be called twice."""
        await self._leave()

    def _running(self) -> Episode:
        if self._episode is None:
            raise OrderError("there is no episode yet: call reset() first")
        return self._episode

    async def _leave(self) -> None:
        episode, self._episode, self._request = self._episode, None, None
        if episode is not None:
            async with episode:
                await episode.stop(StopReason.CANCELLED)

    @staticmethod
    def _ended_at_once(episode: Episode) -> str:
        """Say why there is nothing to answer."""
        machine = episode.machine
        what = f"the episode of task {episode.plan.task.id} ended before its first reply: {machine.reason}"
        window = machine.ledger.tightest(BudgetKind.CONTEXT_TOKENS)
        if machine.reason is StopReason.CONTEXT_OVERFLOW and window is not None:
            prompt = len(machine.window.segment_ids)
            return (
                f"{what}. Its first prompt has {prompt} tokens, the context window {window.limit:g}; a larger window, "
                "fewer worked examples or a compressor makes it fit"
            )
        return what if machine.budget is None else f"{what} ({machine.budget.name}); raise that budget"

    def _observation(self) -> Observation:
        machine = self._running().machine
        request = self._request
        return Observation(
            prompt_ids=machine.window.segment_ids[:] if request is None else request.prompt_ids[:],
            budgets=machine.ledger.states(),
            turn=machine.turn,
            max_tokens=0 if request is None else request.sampling.max_tokens,
            purpose=Purpose.ACT if request is None else request.purpose,
        )

    def _info(self) -> dict[str, Any]:
        episode = self._running()
        machine = episode.machine
        info: dict[str, Any] = {"task_id": episode.plan.task.id}
        if machine.reason is not None:
            info |= {
                "reason": str(machine.reason),
                "scoring": str(machine.scoring),
                "scored": machine.scoring is Scoring.SCORED,
                "outcome": str(machine.outcome),
                "fault": None if machine.fault is None else machine.fault.message,
                "reward": self.record.reward,
            }
        return info
