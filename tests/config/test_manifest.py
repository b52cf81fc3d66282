"""Law 13: the manifest has versions and content hashes of everything that shaped the tokens.

Suite and task, chat template, tokenizer, compressor and its model, tools, sandbox image, sampling parameters, seeds,
our own version: each is there, and the manifest is another one when it changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import agentenv.config.manifest
import pytest
from agentenv.compressors.table import parse_compressor
from agentenv.config.manifest import build_manifest
from agentenv.config.run_config import PolicyConfig, RunConfig
from agentenv.config.survey import survey_of
from agentenv.core.compressor import Compressor
from agentenv.core.policy import PolicyIdentity
from agentenv.core.renderer import RendererIdentity
from agentenv.core.sandbox import SandboxProvider
from agentenv.core.task import Suite, Task
from agentenv.records.axes import BudgetKind, BudgetOwner
from agentenv.records.budgets import Budget
from agentenv.records.tokens import SamplingParams
from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.storage.manifest import canonical, differences
from agentenv.toolkit.function_tool import tool
from agentenv.toolkit.suite import SeededSuite, Variant, messages


@tool
def one() -> str:
    """Do one thing."""
    return "one"


@tool(name="one")
def another() -> str:
    """Do another thing under the same name."""
    return "another"


def plain(draw: Variant) -> Task:
    return Task(id=draw.id, messages=messages("hi"), tools=(one,))


def otherwise(draw: Variant) -> Task:
    return Task(id=draw.id, messages=messages("hello"), tools=(one,))


def other_tools(draw: Variant) -> Task:
    return Task(id=draw.id, messages=messages("hi"), tools=(another,))


def other_tools_later(draw: Variant) -> Task:
    return plain(draw) if draw.seed == 0 else other_tools(draw)


def otherwise_later(draw: Variant) -> Task:
    return plain(draw) if draw.seed == 0 else otherwise(draw)


class OtherProvider(BwrapProvider):
    """One whose image is another."""

    def identity(self) -> dict[str, str]:
        return super().identity() | {"image": "sha256:other"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    config: RunConfig
    suite: Suite
    identity: PolicyIdentity
    renderer: RendererIdentity
    compressor: Compressor
    provider: SandboxProvider | None
    tokenizer_source: str = "builtin:bytes"

    def manifest(self) -> dict[str, Any]:
        """As it is stored."""
        made = build_manifest(
            self.config,
            suite=self.suite,
            survey=survey_of(self.suite.task(self.config.seed + n, self.config.level) for n in range(3)),
            identity=self.identity,
            renderer=self.renderer,
            compressor=self.compressor,
            provider=self.provider,
            tokenizer_source=self.tokenizer_source,
        )
        return json.loads(canonical(made))


BASE = Ingredients(
    config=RunConfig(suite="plain"),
    suite=SeededSuite("plain", 10, make=plain),
    identity=PolicyIdentity(kind="vllm", model="m", engine="vllm 0.32", endpoint="http://a", tokenizer_sha256="t" * 64),
    renderer=RendererIdentity(
        name="template",
        tokenizer_sha256="t" * 64,
        template_sha256="c" * 64,
        call_style="hermes",
        tools_carrier="template",
        results_carrier="tool",
    ),
    compressor=parse_compressor("window:4096"),
    provider=BwrapProvider(),
)

Change = Callable[[Ingredients], Ingredients]


def config(**changes: Any) -> Change:
    return lambda base: replace(base, config=replace(base.config, **changes))


def identity(**changes: Any) -> Change:
    return lambda base: replace(base, identity=replace(base.identity, **changes))


def renderer(**changes: Any) -> Change:
    return lambda base: replace(base, renderer=replace(base.renderer, **changes))


def suite(make: Callable[[Variant], Task], **changes: Any) -> Change:
    return lambda base: replace(base, suite=SeededSuite("plain", 10, make=make, **changes))


TURNS = Budget(kind=BudgetKind.TURNS, limit=3, owner=BudgetOwner.COLLECTOR)

CHANGES: dict[str, tuple[str, Change]] = {
    "suite": ("suite.sha256", suite(otherwise)),
    "task": ("suite.tasks_sha256", suite(otherwise)),
    "a task that is not the first": ("suite.tasks_sha256", suite(otherwise_later)),
    "tools of a task that is not the first": ("suite.tools.one", suite(other_tools_later)),
    "level": ("suite.level", lambda base: suite(plain, levels=(1, 2))(config(level=2)(base))),
    "seeds": ("suite.seed", config(seed=1)),
    "number of tasks": ("suite.tasks", config(tasks=9)),
    "group size": ("suite.group_size", config(group_size=2)),
    "worked examples": ("suite.shots", config(shots=2)),
    "tools": ("suite.tools.one", suite(other_tools)),
    "chat template": ("renderer.template_sha256", renderer(template_sha256="d" * 64)),
    "tokenizer": ("renderer.tokenizer_sha256", renderer(tokenizer_sha256="u" * 64)),
    "call style": ("renderer.call_style", renderer(call_style="llama3")),
    "carrier of tools": ("renderer.tools_carrier", renderer(tools_carrier="system")),
    "carrier of results": ("renderer.results_carrier", renderer(results_carrier="user")),
    "model": ("policy.model", identity(model="n")),
    "engine": ("policy.engine", identity(engine="vllm 0.33")),
    "the engine's tokenizer": ("policy.tokenizer_sha256", identity(tokenizer_sha256="u" * 64)),
    "context window": ("policy.context_window", identity(context_window=2048)),
    "weights": ("policy.details.weights", identity(details={"weights": "sha256:1"})),
    "compressor": ("compressor.sha256", lambda base: replace(base, compressor=parse_compressor("none"))),
    "settings of the compressor": (
        "compressor.name",
        lambda base: replace(base, compressor=parse_compressor("window:8192")),
    ),
    "sandbox": ("sandbox", lambda base: replace(base, provider=None)),
    "sandbox image": ("sandbox.image", lambda base: replace(base, provider=OtherProvider())),
    **{
        f"sampling: {name}": (f"sampling.{name}", config(sampling=replace(SamplingParams(), **{name: value})))
        for name, value in {
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 5,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "presence_penalty": 0.1,
            "frequency_penalty": 0.1,
            "max_tokens": 7,
            "stop_token_ids": (3,),
        }.items()
    },
    "budgets": ("budgets.collector.turns", config(budgets=(TURNS,))),
    "budgets in text": ("episode.show_budgets", config(show_budgets="tool_result")),
    "reserve": ("episode.reserve_tokens", config(reserve_tokens=9)),
    "output cap": ("episode.output_cap_bytes", config(output_cap_bytes=99)),
    "time for tools": ("episode.tool_timeout_s", config(tool_timeout_s=9.0)),
    "snapshots": ("episode.snapshots", config(snapshots=False)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_manifest_changes_when_the_thing_does(name: str) -> None:
    """Law 13: versions and content hashes of everything that shaped the tokens; resuming compares them."""
    key, change = CHANGES[name]
    found = [difference[0] for difference in differences(BASE.manifest(), change(BASE).manifest())]
    assert any(path == key or path.startswith(f"{key}.") for path in found), found


def test_every_sampling_parameter_is_among_the_changes() -> None:
    """Law 13: a parameter that is added must be added here, and thereby to the manifest."""
    tried = {key.removeprefix("sampling.") for key, _ in CHANGES.values() if key.startswith("sampling.")}
    assert tried == set(SamplingParams.__dataclass_fields__)


def test_every_setting_is_tried_or_may_differ() -> None:
    """Law 13: each field of a configuration shapes the run, and is tried above, or says only where and how fast."""
    shaping = {"level", "seed", "tasks", "group_size", "shots", "sampling", "budgets", "show_budgets", "snapshots"}
    shaping |= {"compressor", "sandbox", "reserve_tokens", "output_cap_bytes", "tool_timeout_s", "suite", "policy"}
    shaping |= {"mcp", "mcp_programs"}  # tried in tests/mcp/test_episodes.py: they need servers
    operating = {"concurrency", "reply_timeout_s", "max_attempts", "durability", "sandbox_warm"}
    assert shaping | operating == set(RunConfig.__dataclass_fields__)
    changes = {"concurrency": 3, "reply_timeout_s": 9.0, "max_attempts": 9, "durability": "power", "sandbox_warm": 2}
    for name in operating:
        assert differences(BASE.manifest(), config(**{name: changes[name]})(BASE).manifest()) == []


def test_our_own_version_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 13: and the versions of the libraries whose output becomes tokens."""
    before = BASE.manifest()
    assert set(before["libraries"]) >= {"jinja2", "tokenizers", "msgspec"}
    assert all(version[0].isdigit() for version in before["libraries"].values())
    monkeypatch.setattr(agentenv.config.manifest, "__version__", "9.9.9")
    assert [path for path, *_ in differences(before, BASE.manifest())] == ["agentenv"]


def test_two_runs_of_one_kind_have_equal_manifests_but_for_their_names() -> None:
    """Law 13: what may differ is under keys that say so; the rest has one canonical form."""
    first, second = BASE.manifest(), identity(endpoint="http://b")(BASE).manifest()
    assert first["run"]["id"] != second["run"]["id"]
    assert differences(first, second) == []
    assert canonical(first) != canonical(second)


def test_a_key_of_the_server_is_never_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTENV_API_KEY", "hush-4711")
    policy = PolicyConfig(kind="vllm", url="http://a")
    assert policy.api_key == "hush-4711"
    assert b"hush-4711" not in canonical(config(policy=policy)(BASE).manifest())
