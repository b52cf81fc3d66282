"""No setting of a policy is silently ignored: it means something, or it is refused by its name."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main
from agentenv import open_run, stored_run
from agentenv.config.environments import EnvConfig, make_agent_env
from agentenv.config.options import option
from agentenv.config.policies import POLICIES
from agentenv.config.run_config import CALL_STYLES, READS, PolicyConfig, RunConfig, parse_budgets
from agentenv.errors import ConfigError, UnknownNameError, UsageError
from agentenv.records.axes import BudgetKind, StopReason
from agentenv.records.episode import EpisodeRecord
from agentenv.records.tokens import SamplingParams
from agentenv.rendering.loading import byte_renderer

OWN = {
    "url": "http://127.0.0.1:9",
    "model": "m",
    "tokenizer": "builtin:bytes",
    "call_style": "hermes",
    "logprobs": "auto",
    "slots": 2,
    "threads": 2,
}
OF_ALL = {
    "kind",
    "context_window",
    "api_key_env",
    "usd_per_million_prompt_tokens",
    "usd_per_million_completion_tokens",
}


def test_the_table_knows_every_kind_and_every_setting() -> None:
    assert set(READS) == set(POLICIES)
    assert set(OWN) | OF_ALL == {field.name for field in fields(PolicyConfig)}
    assert set().union(*READS.values()) == set(OWN)


@pytest.mark.parametrize("kind", READS)
@pytest.mark.parametrize("name", OWN)
def test_a_setting_is_read_or_refused(kind: str, name: str) -> None:
    """Also where the value is what it would be anyway: not given is None."""
    if name in READS[kind]:
        PolicyConfig(kind=kind, **{name: OWN[name]})  # type: ignore[arg-type]
        return
    with pytest.raises(ConfigError, match=rf"Policy {kind} does not read {name} \(--{name.replace('_', '-')}\)"):
        PolicyConfig(kind=f"{kind}:rest", **{name: OWN[name]})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"context_window": 0},
        {"context_window": 1},
        {"context_window": -5},
        {"kind": "smollm2", "slots": 0},
        {"kind": "smollm2", "threads": -1},
        {"kind": "vllm", "logprobs": "raw"},
        {"usd_per_million_prompt_tokens": -1.0},
        {"usd_per_million_completion_tokens": math.nan},
        {"usd_per_million_completion_tokens": math.inf},
    ],
)
@pytest.mark.parametrize("kind", READS)
def test_what_means_nothing_is_refused_whatever_the_kind(kind: str, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        PolicyConfig(**{"kind": kind, **settings})


async def collected(out: Path, **changes: Any) -> list[EpisodeRecord]:
    policy = PolicyConfig(**{"kind": "scripted", **changes.pop("policy", {})})
    async with open_run(RunConfig(suite="arithmetic", policy=policy, tasks=2, **changes), out) as run:
        assert (await run.collect()).complete
    with stored_run(out) as stored:
        return list(stored.records())


async def test_a_context_window_binds_a_policy_that_has_none(tmp_path: Path) -> None:
    """Of it and a context budget the tighter one holds."""
    free = await collected(tmp_path / "free")
    prompt = free[0].steps[0].prompt_length
    for n, (window, budgets) in enumerate([(prompt, []), (9999, [f"context_tokens={prompt}"])]):
        records = await collected(
            tmp_path / f"run{n}", policy={"context_window": window}, budgets=parse_budgets(budgets)
        )
        assert records[0].reason is StopReason.CONTEXT_OVERFLOW
        (state,) = [state for state in records[0].budgets if state.kind is BudgetKind.CONTEXT_TOKENS]
        assert state.limit == prompt
    roomy = await collected(tmp_path / "roomy", policy={"context_window": 9999})
    assert [record.reason for record in roomy] == [record.reason for record in free]


async def test_prices_are_charged_whatever_the_policy(tmp_path: Path) -> None:
    """Law 6: what a reply costs is prompt and completion tokens at their prices, and the cost budget ends episodes."""
    prices = {"usd_per_million_prompt_tokens": 2e6, "usd_per_million_completion_tokens": 3e6}
    records = await collected(tmp_path / "run", policy=prices, budgets=parse_budgets(["cost=1"]))
    for record in records:
        (step,) = record.steps
        assert step.cost_usd == 2.0 * step.prompt_length + 3.0 * step.completion_length
        assert (record.reason, record.budget) == (StopReason.COLLECTOR_BUDGET, "collector.cost")
    replay = PolicyConfig(kind=f"replay:{tmp_path / 'run'}", usd_per_million_completion_tokens=1e6)
    async with open_run(RunConfig(suite="arithmetic", policy=replay, tasks=2), tmp_path / "again") as run:
        assert (run.identity.usd_per_prompt_token, run.identity.usd_per_completion_token) == (0.0, 1.0)
        assert run.manifest["policy"]["usd_per_completion_token"] == 1.0


def test_a_cost_budget_without_prices_is_refused() -> None:
    with pytest.raises(ConfigError, match="--usd-per-million-prompt-tokens and --usd-per-million-completion-tokens"):
        RunConfig(suite="arithmetic", budgets=parse_budgets(["cost=1"]))
    for name in ("usd_per_million_prompt_tokens", "usd_per_million_completion_tokens"):
        policy = PolicyConfig(**{name: 0.5})  # type: ignore[arg-type]
        RunConfig(suite="arithmetic", budgets=parse_budgets(["cost=1"]), policy=policy)


@pytest.mark.parametrize("settings", [{"context_window": 0}, {"context_window": -1}, {"max_prompt": 0}])
def test_so_are_the_sizes_of_an_environment(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        make_agent_env("arithmetic", **settings)
    if "context_window" in settings:
        with pytest.raises(ConfigError, match="2 tokens at least"):
            EnvConfig(run=RunConfig(suite="arithmetic"), **settings)


@pytest.mark.parametrize("name", ["url", "model", "tokenizer", "call_style"])
def test_an_empty_setting_is_none_and_not_the_default(name: str) -> None:
    """As a shell variable that is not set gives it."""
    kind = next(kind for kind, reads in READS.items() if name in reads)
    with pytest.raises(ConfigError, match=rf"^{name} \(--{name.replace('_', '-')}\) is given and empty"):
        PolicyConfig(kind=kind, **{name: ""})  # type: ignore[arg-type]


def test_the_call_styles_are_those_of_the_renderer() -> None:
    for style in CALL_STYLES:
        assert byte_renderer(style).identity.call_style == style
    with pytest.raises(UnknownNameError, match="Known: hermes, llama3, mistral, pythonic") as refused:
        byte_renderer("none of these")
    assert str(refused.value).endswith(f"Known: {', '.join(CALL_STYLES)}.")


def test_every_option_that_an_error_names_is_one_of_collects() -> None:
    """`option` spells settings as the command line does."""
    from agentenv.cli.main import command_line

    command = typer.main.get_command(command_line()).commands["collect"]  # type: ignore[attr-defined]
    spelled = {spelling for parameter in command.params for spelling in parameter.opts}
    own = {field.name for kind in (PolicyConfig, RunConfig, SamplingParams) for field in fields(kind)}
    apart = {"api_key_env", "kind", "suite", "policy", "sampling", "budgets", "reserve_tokens", "stop_token_ids"}
    for name in own - apart - {"presence_penalty", "frequency_penalty"}:
        assert option(name).split("(")[1].rstrip(")") in spelled, name


@pytest.mark.parametrize("style", ["", "hermis"])
def test_so_does_an_environment(style: str) -> None:
    with pytest.raises(UnknownNameError, match=r"\(--call-style\)"):
        make_agent_env("arithmetic", call_style=style)
    with pytest.raises(ConfigError, match=r"^tokenizer nowhere does not exist: expected a model directory"):
        make_agent_env("arithmetic", tokenizer="nowhere")
