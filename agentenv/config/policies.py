"""Policies and renderers from their configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agentenv.config.options import blaming, option
from agentenv.config.run_config import DEFAULT_SLOTS, DEFAULT_THREADS, DEFAULT_WINDOW, PolicyConfig, check_call_style
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


_MOST_TOKENS = 1 << 31
"""Of all slots of an engine in this process, which counts them so."""
BUILTIN_BYTES = "builtin:bytes"
"""Source of the vocabulary of bytes, for policies that have none of their own."""


def renderer_from(source: str, call_style: str | None = None, *, given_as: str = "--tokenizer") -> Renderer:
    """Load a renderer: `BUILTIN_BYTES`, a model folder, a GGUF file, a hub id, or ``tiktoken:NAME``.

    Args:
        source: Where from.
        call_style: How tool calls are written; None: found out from the chat template.
        given_as: The option or setting that ``source`` is the value of, for errors to name.

    Raises:
        ConfigError: It cannot be loaded; says what is missing, and which option is at fault.
        UnknownNameError: No such call style, or no such OpenAI vocabulary.
    """
    from agentenv.rendering.loading import byte_renderer, load_renderer

    check_call_style(call_style)
    if source == BUILTIN_BYTES:
        return byte_renderer(call_style)
    with blaming(given_as, source):
        return load_renderer(source, call_style=call_style)


def _tokenizer(config: PolicyConfig, own: str, given_as: str) -> tuple[str, Renderer]:
    """Give source and renderer: those of ``--tokenizer`` where it is given, else the policy's ``own``."""
    if config.tokenizer is not None:
        return config.tokenizer, renderer_from(config.tokenizer, config.call_style)
    return own, renderer_from(own, config.call_style, given_as=given_as)


def _check_address(url: str) -> None:
    from agentenv.policies.http_client import base_url, read_address

    with blaming("--url"):  # a password in it is not to be repeated
        read_address(base_url(url))


async def _vllm(config: PolicyConfig, _: str) -> Acting:
    from agentenv.policies.vllm import VllmPolicy

    if config.url is None:
        raise ConfigError("Policy vllm needs the server's address: give --url http://HOST:PORT.")
    _check_address(config.url)
    served = "" if config.tokenizer is not None else await _model_of_server(config, config.url)
    source, renderer = _tokenizer(config, served, "No --tokenizer is given, and the server's model")
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

    return _gguf(config, await asyncio.to_thread(smollm2_path), "The model of policy smollm2")


async def _llamacpp(config: PolicyConfig, _: str) -> Acting:
    if config.model is None:
        raise ConfigError("Policy llamacpp needs a model file: give --model PATH.gguf.")
    return _gguf(config, _model_file(config.model), "--model")


def _model_file(given: str) -> Path:
    path = Path(given).expanduser()
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ConfigError(f"--model {given} {what}: policy llamacpp needs a model file, PATH.gguf.")
    return path


def _gguf(config: PolicyConfig, path: Path, given_as: str) -> Acting:
    from agentenv.policies.llamacpp import LlamaCppPolicy

    window = DEFAULT_WINDOW if config.context_window is None else config.context_window
    slots = DEFAULT_SLOTS if config.slots is None else config.slots
    if window * slots >= _MOST_TOKENS:
        raise ConfigError(
            f"{option('context_window')} times {option('slots')} must be less than 2 to the power of 31 tokens, got "
            f"{window} times {slots}."
        )
    source, renderer = _tokenizer(config, str(path), given_as)
    policy = LlamaCppPolicy(
        path,
        tokenizer=renderer.tokenizer,
        n_ctx=window,
        n_parallel=slots,
        n_threads=DEFAULT_THREADS if config.threads is None else config.threads,
    )
    return Acting(policy=policy, renderer=renderer, source=source)


async def _openai(config: PolicyConfig, _: str) -> Acting:
    from agentenv.policies.openai import OpenAiPolicy

    if config.url is None or config.model is None:
        raise ConfigError("Policy openai needs the server's address and the model's name: give --url and --model.")
    _check_address(config.url)
    source, renderer = _tokenizer(config, BUILTIN_BYTES, "--tokenizer")
    policy = OpenAiPolicy(config.url, config.model, renderer=renderer, api_key=config.api_key)
    return Acting(policy=policy, renderer=renderer, source=source)


async def _scripted(config: PolicyConfig, script: str) -> Acting:
    from agentenv.policies.scripted import ScriptedPolicy

    source, renderer = _tokenizer(config, BUILTIN_BYTES, "--tokenizer")
    policy = ScriptedPolicy(renderer, script=script or "reference")
    return Acting(policy=policy, renderer=renderer, source=source)


async def _replay(config: PolicyConfig, run: str) -> Acting:
    from agentenv.policies.replay import ReplayPolicy
    from agentenv.storage.run_folder import RunFolder

    if not run:
        raise ConfigError("Policy replay needs a recorded run: write --policy replay:PATH.")
    with blaming("--policy", f"replay:{run}"):
        folder = RunFolder.open(Path(run))
    recorded = folder.manifest
    config = replace(config, call_style=config.call_style or recorded["run"].get("call_style"))
    source, renderer = _tokenizer(config, recorded["run"]["tokenizer"], f"The tokenizer that {run} was made with,")

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
        raise UnknownNameError.of("policy", kind, POLICIES, where=" (--policy)")
    return await POLICIES[kind][1](config, rest)
