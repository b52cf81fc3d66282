"""Policies and renderers from their configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentenv.config.run_config import DEFAULT_SLOTS, DEFAULT_THREADS, DEFAULT_WINDOW, PolicyConfig
from agentenv.core.policy import Policy
from agentenv.core.renderer import Renderer
from agentenv.errors import ConfigError, UnknownNameError


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """A policy that is not started yet, and the renderer of its vocabulary."""

    policy: Policy
    renderer: Renderer
    source: str
    """Where the renderer was loaded from, for whoever reads the run later: see `renderer_from`."""


BUILTIN_BYTES = "builtin:bytes"
"""Source of the vocabulary of bytes, for policies that have none of their own."""


def renderer_from(source: str, call_style: str | None = None) -> Renderer:
    """Load a renderer: `BUILTIN_BYTES`, a model folder, a GGUF file, a hub id, or ``tiktoken:NAME``.

    Raises:
        ConfigError: It cannot be loaded; says what is missing.
    """
    from agentenv.rendering.loading import byte_renderer, load_renderer

    if source == BUILTIN_BYTES:
        return byte_renderer(call_style)
    return load_renderer(source, call_style=call_style)


async def _vllm(config: PolicyConfig, _: str) -> Acting:
    from agentenv.policies.vllm import VllmPolicy

    if config.url is None:
        raise ConfigError("policy vllm needs the server's address: give --url http://HOST:PORT")
    source = config.tokenizer or await _model_of_server(config, config.url)
    renderer = renderer_from(source, config.call_style)
    policy = VllmPolicy(
        config.url,
        config.model,
        tokenizer=renderer.tokenizer,
        logprobs=config.logprobs or "auto",  # pyright: ignore[reportArgumentType]  checked by the policy, with its own message
        context_window=config.context_window,
        api_key=config.api_key,
    )
    return Acting(policy=policy, renderer=renderer, source=source)


async def _model_of_server(config: PolicyConfig, url: str) -> str:
    """Ask the server which model it serves: a folder this machine shares with it, or a hub id."""
    from agentenv.policies.served import served_model_root

    return await served_model_root(url, config.model, api_key=config.api_key)


async def _smollm2(config: PolicyConfig, _: str) -> Acting:
    from agentenv.local.models import smollm2_path

    return _gguf(config, await asyncio.to_thread(smollm2_path))


async def _llamacpp(config: PolicyConfig, _: str) -> Acting:
    if config.model is None:
        raise ConfigError("policy llamacpp needs a model file: give --model PATH.gguf")
    return _gguf(config, Path(config.model))


def _gguf(config: PolicyConfig, path: Path) -> Acting:
    from agentenv.policies.llamacpp import LlamaCppPolicy

    source = config.tokenizer or str(path)
    renderer = renderer_from(source, config.call_style)
    policy = LlamaCppPolicy(
        path,
        tokenizer=renderer.tokenizer,
        n_ctx=DEFAULT_WINDOW if config.context_window is None else config.context_window,
        n_parallel=DEFAULT_SLOTS if config.slots is None else config.slots,
        n_threads=DEFAULT_THREADS if config.threads is None else config.threads,
    )
    return Acting(policy=policy, renderer=renderer, source=source)


async def _openai(config: PolicyConfig, _: str) -> Acting:
    from agentenv.policies.openai import OpenAiPolicy

    if config.url is None or config.model is None:
        raise ConfigError("policy openai needs --url and --model")
    source = config.tokenizer or BUILTIN_BYTES
    renderer = renderer_from(source, config.call_style)
    policy = OpenAiPolicy(config.url, config.model, renderer=renderer, api_key=config.api_key)
    return Acting(policy=policy, renderer=renderer, source=source)


async def _scripted(config: PolicyConfig, script: str) -> Acting:
    from agentenv.policies.scripted import ScriptedPolicy

    source = config.tokenizer or BUILTIN_BYTES
    renderer = renderer_from(source, config.call_style)
    policy = ScriptedPolicy(renderer, script=script or "reference")
    return Acting(policy=policy, renderer=renderer, source=source)


async def _replay(config: PolicyConfig, run: str) -> Acting:
    from agentenv.policies.replay import ReplayPolicy
    from agentenv.storage.run_folder import RunFolder

    if not run:
        raise ConfigError("policy replay needs a recorded run: write replay:PATH")
    folder = RunFolder.open(Path(run))
    recorded = folder.manifest
    source = config.tokenizer or recorded["run"]["tokenizer"]
    renderer = renderer_from(source, config.call_style or recorded["run"].get("call_style"))

    class OwnedReplay(ReplayPolicy):
        """A replay that closes the run it was opened for."""

        async def aclose(self) -> None:
            reader.close()

    reader = folder.reader()
    policy = OwnedReplay(
        reader, model=recorded["policy"]["model"], tokenizer_sha256=recorded["policy"]["tokenizer_sha256"]
    )
    return Acting(policy=policy, renderer=renderer, source=source)


POLICIES: Mapping[str, tuple[str, Callable[[PolicyConfig, str], Awaitable[Acting]]]] = {
    "llamacpp": ("a GGUF model under llama.cpp, in this process (extra: local)", _llamacpp),
    "openai": ("any OpenAI-compatible server, text only: records are not trainable", _openai),
    "replay": ("plays a recorded run: replay:RUN", _replay),
    "scripted": ("plays a script of each task: scripted, scripted:nothing, …", _scripted),
    "smollm2": ("SmolLM2-135M-Instruct under llama.cpp, fetched once (extra: local)", _smollm2),
    "vllm": ("a vLLM server, token ids in and out", _vllm),
}
"""Name to one line for `agentenv list policies`, and what makes it."""


async def build_policy(config: PolicyConfig) -> Acting:
    """Make a policy and its renderer; nothing is started.

    Raises:
        UnknownNameError: No such policy.
        ConfigError: A setting is missing or cannot work.
    """
    kind, _, rest = config.kind.partition(":")
    if kind not in POLICIES:
        raise UnknownNameError.of("policy", kind, POLICIES)
    return await POLICIES[kind][1](config, rest)
