"""``agentenv policy serve``: a local engine that speaks vLLM's tokens endpoint, and OpenAI's chat completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentenv.cli.running import run

if TYPE_CHECKING:
    from agentenv.config.run_config import PolicyConfig


LOCAL = ("smollm2", "llamacpp")
"""Policies whose engine runs in this process."""


def serve(
    policy: Annotated[str, typer.Option(help="smollm2 or llamacpp.")] = "smollm2",
    model: Annotated[str | None, typer.Option(help="A GGUF file, for llamacpp.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    context: Annotated[int | None, typer.Option(help="Window of each reply in tokens.")] = None,
    slots: Annotated[int | None, typer.Option(help="Replies at once; default 4.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of the engine; default 1.")] = None,
) -> None:
    """Serve a local model until Ctrl-C; point --policy vllm --url at it, or --policy openai --url for text alone."""
    from agentenv.config.run_config import PolicyConfig
    from agentenv.errors import UsageError
    from agentenv.local.server import check_host

    if policy not in LOCAL:
        raise UsageError(f"--policy {policy}: policy serve takes {' or '.join(LOCAL)}.")
    config = PolicyConfig(kind=policy, model=model, context_window=context, slots=slots, threads=threads)
    check_host(host, config.api_key)
    run(_serve(config, host, port))


async def _serve(config: PolicyConfig, host: str, port: int) -> None:
    from agentenv.config.policies import build_policy
    from agentenv.local.server import serve as serve_policy

    acting = await build_policy(config)
    async with acting.policy as policy:
        await policy.start()
        await serve_policy(
            policy,
            acting.renderer,
            host=host,
            port=port,
            api_key=config.api_key,
            ready=lambda address: print(
                f"serving at {address}; try: agentenv collect arithmetic --policy vllm --url {address} "
                f"--tokenizer {acting.source}\n"
                f"or, as text: agentenv collect arithmetic --policy openai --url {address} "
                f"--model {policy.identity.model}",
                flush=True,
            ),
        )


def register(app: typer.Typer, policy: typer.Typer) -> None:
    """Add the command."""
    del app
    policy.command("serve")(serve)
