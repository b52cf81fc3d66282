"""``agentenv collect``: rollouts of a suite into a run folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentenv.cli.paths import given_path
from agentenv.cli.running import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentenv.config.run_config import RunConfig
    from agentenv.rollout.collector import Tally

_MOST_UNCLOSED = 5
"""Lines that the summary has of what could not be closed."""


def collect(  # noqa: PLR0913, PLR0917 - one parameter per flag
    suite: Annotated[str, typer.Argument(help="Registered suite, path of a suite.py, or module:attribute.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", parser=given_path, metavar="PATH", help="Run folder; default runs/SUITE-POLICY[-SCRIPT]."
        ),
    ] = None,
    policy: Annotated[
        str, typer.Option(help="vllm, smollm2, llamacpp, openai, scripted[:SCRIPT], replay:RUN.")
    ] = "smollm2",
    url: Annotated[
        str | None, typer.Option(help="Address of the policy server: http://HOST:PORT, or HOST:PORT.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Served model name, or a GGUF file.")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Model folder, GGUF file, hub id or tiktoken:NAME.")] = None,
    call_style: Annotated[str | None, typer.Option(help="hermes, llama3, mistral, pythonic; default: detect.")] = None,
    logprobs: Annotated[
        str | None, typer.Option(help="auto (default) probes; model, sampling, unknown declare.")
    ] = None,
    context: Annotated[int | None, typer.Option(help="Context window in tokens; default: the engine's.")] = None,
    slots: Annotated[int | None, typer.Option(help="Replies at once of an engine in this process; default 4.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of an engine in this process; default 1.")] = None,
    usd_per_million_prompt_tokens: Annotated[
        float, typer.Option(help="Price, for a budget of cost and for stats.")
    ] = 0.0,
    usd_per_million_completion_tokens: Annotated[
        float, typer.Option(help="Price, for a budget of cost and for stats.")
    ] = 0.0,
    tasks: Annotated[int, typer.Option("--tasks", "-n", help="Tasks to collect.")] = 8,
    group_size: Annotated[int, typer.Option(help="Episodes per task.")] = 1,
    concurrency: Annotated[
        int | None, typer.Option(help="Episodes at once; default: the slots of an engine in this process, else 16.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Task i has seed SEED + i.")] = 0,
    level: Annotated[int, typer.Option(help="Difficulty.")] = 1,
    shots: Annotated[int, typer.Option(help="Worked examples in the prompt.")] = 0,
    temperature: Annotated[float, typer.Option(help="0: greedy. Other than 1 may be untrainable.")] = 1.0,
    top_p: Annotated[float, typer.Option(help="Keep the likeliest tokens of this much probability; 1: no cut.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="0: no cut.")] = 0,
    min_p: Annotated[float, typer.Option(help="Cut tokens below this share of the likeliest; 0: no cut.")] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1 discourages tokens seen before; 1: off.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(help="Longest reply.")] = 2048,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            help="Collector budget KIND=LIMIT; may be repeated. Kinds: turns, sampled_tokens, context_tokens, "
            "tool_calls, wall_clock (seconds), cost (US dollars)."
        ),
    ] = None,
    show_budgets: Annotated[
        str, typer.Option(help="Tell the policy what is left: none, tool_result or first_message.")
    ] = "none",
    compressor: Annotated[
        str, typer.Option(help="none, window:N, clear-tool-results:N[,keep=K], or FILE.py[:SETTINGS] of yours.")
    ] = "none",
    sandbox: Annotated[str, typer.Option(help="auto, or a provider of `agentenv list sandboxes`.")] = "auto",
    mcp: Annotated[
        list[str] | None,
        typer.Option(help="MCP server, NAME=COMMAND in the sandbox or NAME=URL, for every task; may be repeated."),
    ] = None,
    mcp_program: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FOLDER carried into the sandbox for it; {program} in its command is where it is."),
    ] = None,
    sandbox_warm: Annotated[int, typer.Option(help="Sandboxes that stand ready before they are asked for.")] = 0,
    output_cap: Annotated[int, typer.Option(help="Most bytes of a tool result that are shown.")] = 16_384,
    tool_timeout: Annotated[float, typer.Option(help="Seconds for the tools of one action.")] = 120.0,
    reply_timeout: Annotated[float, typer.Option(help="Seconds for one reply.")] = 600.0,
    max_attempts: Annotated[int, typer.Option(help="Attempts per episode where infrastructure gave way.")] = 3,
    snapshots: Annotated[bool, typer.Option(help="Keep workspaces by content hash.")] = True,
    durability: Annotated[str, typer.Option(help="process (survives kill -9) or power.")] = "process",
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Finish a run that was interrupted: the same command, but for --concurrency, --max-attempts, "
            "--reply-timeout, --durability and --url, which may differ.",
        ),
    ] = False,
) -> None:
    """Collect rollouts of a suite, every fact on disk before it is acted upon."""
    from agentenv.config.run_config import PolicyConfig, RunConfig, parse_budgets
    from agentenv.records.tokens import SamplingParams

    config = RunConfig(
        suite=suite,
        policy=PolicyConfig(
            kind=policy,
            url=url,
            model=model,
            tokenizer=tokenizer,
            call_style=call_style,
            logprobs=logprobs,
            context_window=context,
            slots=slots,
            threads=threads,
            usd_per_million_prompt_tokens=usd_per_million_prompt_tokens,
            usd_per_million_completion_tokens=usd_per_million_completion_tokens,
        ),
        tasks=tasks,
        group_size=group_size,
        concurrency=concurrency,
        seed=seed,
        level=level,
        shots=shots,
        sampling=SamplingParams(
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            max_tokens=max_tokens,
        ),
        budgets=parse_budgets(budget or []),
        show_budgets=show_budgets,
        compressor=compressor,
        sandbox=sandbox,
        mcp=tuple(mcp or ()),
        mcp_programs=tuple(mcp_program or ()),
        sandbox_warm=sandbox_warm,
        output_cap_bytes=output_cap,
        tool_timeout_s=tool_timeout,
        reply_timeout_s=reply_timeout,
        max_attempts=max_attempts,
        snapshots=snapshots,
        durability=durability,
    )
    folder = out or default_folder(suite, policy)
    try:
        tally = run(_collect(config, folder, resume=resume))
    except KeyboardInterrupt:
        kept = f"Interrupted: {_n_done(folder)} of {config.tasks * config.group_size} episodes are done."
        door = " with --resume finishes the run" if folder.is_dir() else " begins the run: there is no folder yet"
        print(f"{kept} The same command{door}.", file=sys.stderr)
        raise typer.Exit(130) from None
    _report(folder, tally)
    if not tally.complete:
        raise typer.Exit(3)


def default_folder(suite: str, policy: str) -> Path:
    """Name a run folder after suite, policy and script, so that different runs do not meet.

    >>> default_folder("path/to/sums.py", "scripted:nothing").name
    'sums-scripted-nothing'
    """
    kind, _, rest = policy.partition(":")
    parts = [Path(suite.replace(":", "-")).stem, kind, Path(rest).name]
    return Path("runs") / "-".join(part for part in parts if part)


async def _collect(config: RunConfig, out: Path, *, resume: bool) -> Tally:
    """Collect; what a user must know of the whole run goes to stderr before anything is sampled."""
    from agentenv.cli.progress import LiveProgress
    from agentenv.cli.terminal import harmless
    from agentenv.config.run import open_run
    from agentenv.core.training import nothing_trainable

    with LiveProgress(total=config.tasks * config.group_size) as live:
        async with open_run(config, out, resume=resume, observer=live) as opened:
            warning = nothing_trainable(opened.identity, config.sampling)
            if warning is not None:
                print(harmless(warning), file=sys.stderr, flush=True)
            live.skip(len(opened.before.done))
            return await opened.collect()


def _n_done(folder: Path) -> int:
    """Count what is done on disk; 0 where the run was not begun yet."""
    from agentenv.config.reading import stored_run
    from agentenv.errors import ConfigError
    from agentenv.rollout.schedule import progress_of

    try:
        with stored_run(folder) as stored:
            return len(progress_of(stored.reader).done)
    except ConfigError:
        return 0


def _report(folder: Path, tally: Tally) -> None:
    from agentenv.cli.stats import print_stats
    from agentenv.cli.terminal import harmless

    if tally.done_before == tally.planned:
        print(
            f"Nothing was left to do: all {tally.planned} episodes of {folder} were done. To collect more, give "
            "another folder (--out), and other tasks (--seed) or more of them (--tasks, --group-size)."
        )
    print_stats(folder)
    if tally.stopped_by:
        print(harmless(f"No further episodes were begun: {tally.stopped_by}"), file=sys.stderr)
    if not tally.complete:
        missing = tally.planned - tally.done_before - tally.done
        print(
            f"{missing} of {tally.planned} episodes are not done. The same command with --resume tries them again; "
            "after changing the suite, collect into another folder (--out).",
            file=sys.stderr,
        )
    for line in _unclosed(tally):
        print(harmless(line), file=sys.stderr)
    print(f"Look at it: agentenv show {folder}")


def _unclosed(tally: Tally) -> Iterator[str]:
    """Say what was left behind: no episode's affair any more, but perhaps the machine's."""
    n = len(tally.unclosed)
    if n:
        left = "1 attempt left" if n == 1 else f"{n} attempts left"
        yield f"{left} something behind that could not be closed; the records stand:"
    yield from (f"  {line}" for line in tally.unclosed[:_MOST_UNCLOSED])
    if n > _MOST_UNCLOSED:
        yield f"  … and {n - _MOST_UNCLOSED} more"


def register(app: typer.Typer, policy: typer.Typer) -> None:
    """Add the command."""
    del policy
    app.command()(collect)
