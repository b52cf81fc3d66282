"""Environments by name: what `gymnasium.make` and users of the asynchronous door call."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agentenv.config.ingredients import Ingredients, find_needs
from agentenv.config.mcp import with_servers
from agentenv.config.options import blaming, option
from agentenv.config.policies import BUILTIN_BYTES, renderer_from
from agentenv.config.run_config import RunConfig, check_context_window, check_level
from agentenv.core.policy import PolicyIdentity
from agentenv.core.renderer import Renderer
from agentenv.envs.async_env import AsyncAgentEnv
from agentenv.errors import ConfigError, UnknownNameError, ended
from agentenv.registry import load_compressor, load_suite
from agentenv.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from agentenv.envs.gym_env import AgentEnv

DEFAULT_MAX_PROMPT = 8192
_SURVEYED = 16
"""Tasks that are looked at for what the suite needs. Which will be played is for whoever calls ``reset`` to say; one
that needs a sandbox where none of these does ends with a fault that says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvConfig:
    """An environment whose policy is somebody else's."""

    run: RunConfig
    tokenizer: str = BUILTIN_BYTES
    """Vocabulary of the actions and observations; text actions need none of one's own."""
    call_style: str | None = None
    context_window: int | None = None
    out: Path | None = None
    """Run folder to record into; None keeps the facts of the current episode only."""

    def __post_init__(self) -> None:
        """Refuse a window that holds nothing.

        Raises:
            ConfigError: Less than 2 tokens.
        """
        check_context_window(self.context_window)


@asynccontextmanager
async def open_environment(config: EnvConfig, renderer: Renderer | None = None) -> AsyncGenerator[AsyncAgentEnv]:
    """Open the asynchronous environment.

    Raises:
        ConfigError: A setting cannot work.
        SandboxFault: The suite needs a sandbox and none works here.
        RunInUse: Another process records into ``out``.
    """
    if not isinstance(config, EnvConfig):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types
        raise ConfigError(
            f"Expected an EnvConfig, got {type(config).__name__}: write open_environment(EnvConfig(run=RunConfig("
            "suite='arithmetic')))"
        )
    run = config.run
    suite = load_suite(run.suite)
    with blaming(option("compressor"), run.compressor):
        compressor = load_compressor(run.compressor)
    chosen = renderer or renderer_from(config.tokenizer, config.call_style, given_as="tokenizer")
    check_level(suite, run.level)
    if run.shots:
        with blaming(option("shots"), run.shots):
            suite.demonstrations(run.shots, run.level)
    suite.task(run.seed, run.level)  # refuses what no task of the suite can have
    async with AsyncExitStack() as stack:
        suite = await with_servers(suite, run)
        survey, provider = await find_needs(run, suite, tasks=_SURVEYED, stack=stack)
        ingredients = Ingredients(
            config=run,
            suite=suite,
            compressor=compressor,
            renderer=chosen,
            tokenizer_source=config.tokenizer,
            identity=run.policy.priced(_somebody(config.context_window, chosen)),
            survey=survey,
            provider=provider,
        )
        out = config.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentenv-")))
        folder = stack.enter_context(RunFolder.create(out, ingredients.manifest()))
        parts = await ingredients.parts(folder, stack)
        # The caller drives, so the clock is the caller's: no limit of time unless one was asked for.
        options = replace(run.episode_options, budgets=run.budgets)
        env = AsyncAgentEnv(suite, parts, options, level=run.level, shots=run.shots)
        yield await stack.enter_async_context(env)


def _somebody(context_window: int | None, renderer: Renderer) -> PolicyIdentity:
    """Describe a policy of which no more is known."""
    return PolicyIdentity(
        kind="external",
        model="unknown",
        engine="unknown",
        context_window=context_window,
        tokenizer_sha256=renderer.identity.tokenizer_sha256,
    )


def make_agent_env(
    suite: str,
    *,
    tokenizer: str = BUILTIN_BYTES,
    call_style: str | None = None,
    context_window: int | None = None,
    max_prompt: int | None = None,
    out: str | Path | None = None,
    render_mode: str | None = None,
    **settings: Any,
) -> AgentEnv:
    """Make the Gymnasium environment of a suite; `gymnasium.make` calls this.

    Args:
        suite: As `agentenv collect` takes it.
        tokenizer: Model folder, GGUF file, hub id or ``tiktoken:NAME``; bytes where none is given.
        call_style: How tool calls are written; None: found out from the chat template.
        context_window: Tokens of prompt and reply together; None: no limit.
        max_prompt: Length of ``prompt_ids``; None: the context window, or 8,192.
        out: Run folder to record into; None records nothing on disk.
        render_mode: ``ansi`` or None.
        settings: Further fields of `RunConfig`, such as ``level``, ``compressor``, ``sandbox``, ``sampling``.

    Raises:
        ConfigError: A setting cannot work, or is unknown.
    """
    from agentenv.envs.gym_env import AgentEnv

    run = _run_config(suite, settings)
    config = EnvConfig(
        run=run,
        tokenizer=tokenizer,
        call_style=call_style,
        context_window=context_window,
        out=None if out is None else Path(out),
    )
    renderer = renderer_from(tokenizer, call_style, given_as="tokenizer")
    return AgentEnv(
        partial(open_environment, config, renderer),
        renderer,
        max_prompt=_length(max_prompt, context_window),
        render_mode=render_mode,
    )


def _length(max_prompt: int | None, context_window: int | None) -> int:
    if max_prompt is not None and max_prompt < 1:
        raise ConfigError(f"max_prompt must be at least 1, got {max_prompt}.")
    return max_prompt or context_window or DEFAULT_MAX_PROMPT


def _run_config(suite: str, settings: dict[str, Any]) -> RunConfig:
    """Read settings as `gymnasium.make` carries them: JSON values, or objects of ours."""
    known = [field.name for field in fields(RunConfig)]
    for name in settings:
        if name not in known:
            raise UnknownNameError.of("setting", name, known)
    try:
        return msgspec.convert({"suite": suite, **settings}, RunConfig, from_attributes=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"The settings of {suite!r} cannot be read: {ended(error)}") from error
