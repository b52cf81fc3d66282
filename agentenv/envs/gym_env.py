"""The Gymnasium door: a synchronous environment over the asynchronous one, which runs in a thread of its own."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import gymnasium

from agentenv.core.renderer import Renderer
from agentenv.envs.actions import Action
from agentenv.envs.async_env import AsyncAgentEnv, StepResult
from agentenv.envs.loop_thread import LoopThread
from agentenv.envs.spaces import ReplySpace, observation_space, pad_observation
from agentenv.records.episode import EpisodeRecord

T = TypeVar("T")
EnvOpener = Callable[[], AbstractAsyncContextManager[AsyncAgentEnv]]


class AgentEnv(gymnasium.Env[dict[str, Any], Any]):
    """Multi-turn tool use as a Gymnasium environment; the seed decides the task.

    ``step`` takes what the policy emitted: a mapping with ``token_ids`` (and log-probs where there are any), or plain
    text. Text that is no action is a step like any other, with the parse error as its observation.

    The reward of a step without one is 0.0; the whole reward of the episode comes with its last step. Gymnasium has no
    null: an ended episode that should have been scored and was not gives NaN, and ``info["reward"]`` is None.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - Gymnasium's own way

    def __init__(
        self, open_env: EnvOpener, renderer: Renderer, *, max_prompt: int, render_mode: str | None = None
    ) -> None:
        """Make an environment; nothing is opened before the first `reset`.

        Args:
            open_env: Opens the asynchronous environment, in the environment's own thread.
            renderer: Of the vocabulary.
            max_prompt: Length of ``prompt_ids`` in the observation.
            render_mode: ``ansi`` or None.
        """
        vocab_size = renderer.tokenizer.vocab_size
        self.render_mode = render_mode
        self.observation_space = observation_space(vocab_size=vocab_size, max_prompt=max_prompt)
        self.action_space = ReplySpace(vocab_size)
        self._open_env = open_env
        self._max_prompt = max_prompt
        self._thread: LoopThread[AsyncAgentEnv] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Decides the task. None draws one from this environment's generator.
            options: Not used.
        """
        super().reset(seed=seed)
        task_seed = int(self.np_random.integers(1 << 31)) if seed is None else seed
        observation, info = self._call(lambda env: env.reset(seed=task_seed, options=options))
        return pad_observation(observation, self._max_prompt), info

    def step(self, action: Action) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take a reply and carry out its action."""
        result: StepResult = self._call(lambda env: env.step(action))
        observation = pad_observation(result.observation, self._max_prompt)
        return observation, _as_float(result), result.terminated, result.truncated, result.info

    def render(self) -> str | None:  # type: ignore[override]
        """Give the decoded observation, in mode ``ansi``."""
        return self._call(_text) if self.render_mode == "ansi" else None

    @property
    def record(self) -> EpisodeRecord:
        """The record of the episode so far."""
        return self._call(_record)

    def close(self) -> None:
        """End the episode under way and the thread. May be called twice.

        Raises:
            Exception: Whatever closing raises: what is recorded may not be whole.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    def _call(self, work: Callable[[AsyncAgentEnv], Awaitable[T]]) -> T:
        if self._thread is None:
            self._thread = LoopThread(self._open_env)
        return self._thread.call(work)


async def _text(env: AsyncAgentEnv) -> str:
    return env.text()


async def _record(env: AsyncAgentEnv) -> EpisodeRecord:
    return env.record


def _as_float(result: StepResult) -> float:
    if result.reward is not None:
        return float(result.reward)
    ended = result.terminated or result.truncated
    return math.nan if ended and result.info["scoring"] != "not_required" else 0.0
