"""What a user asks for: one flat, typed, serialisable configuration of a collection."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agentenv.config.options import blaming, option
from agentenv.core.policy import PolicyIdentity
from agentenv.engine.ledger import Ledger
from agentenv.envs.plan import EpisodeOptions
from agentenv.errors import ConfigError, UnknownNameError
from agentenv.records.axes import BudgetKind, BudgetOwner
from agentenv.records.budgets import Budget
from agentenv.records.tokens import SamplingParams

if TYPE_CHECKING:
    from agentenv.core.task import Suite

SHOW_BUDGETS = ("none", "tool_result", "first_message")
MOST_EPISODES = 10_000_000
"""Of one run; the plan of so many takes some gigabytes."""
_TOO_LARGE = 1 << 62
"""Of numbers that rows of other formats have in 64 bits, with what is added to a seed."""
_MOST_AT_ONCE = 4096
"""Of slots and of threads; an engine takes far fewer."""
DEFAULT_WALL_CLOCK_S = 900.0
"""Every episode ends: without a limit of the user's this is the collector's."""
DEFAULT_CONCURRENCY = 16
"""Episodes at once where the policy is somewhere else; see `PolicyConfig.at_once`."""
DEFAULT_WINDOW, DEFAULT_SLOTS, DEFAULT_THREADS = 4096, 4, 1
"""Of an engine in this process: tokens, replies at once, threads."""
CALL_STYLES = ("hermes", "llama3", "mistral", "pythonic")
LOGPROBS = ("auto", "model", "sampling", "unknown")
READS = {
    "llamacpp": {"model", "tokenizer", "call_style", "slots", "threads"},
    "openai": {"url", "model", "tokenizer", "call_style"},
    "replay": {"tokenizer", "call_style"},
    "scripted": {"tokenizer", "call_style"},
    "smollm2": {"tokenizer", "call_style", "slots", "threads"},
    "vllm": {"url", "model", "tokenizer", "call_style", "logprobs"},
}
"""Which settings each kind of policy looks at, besides those that all do: a context window, prices, a key."""
_OWN_SETTINGS = set[str]().union(*READS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """Which policy, and how to reach or load it."""

    kind: str = "smollm2"
    """``vllm``, ``smollm2``, ``llamacpp``, ``openai``, ``scripted[:SCRIPT]``, ``replay:RUN``."""
    url: str | None = None
    model: str | None = None
    """Served name (vllm, openai), or path of a GGUF file (llamacpp)."""
    tokenizer: str | None = None
    """Model folder, GGUF file, hub id or ``tiktoken:NAME``; None: whatever the policy can tell itself."""
    call_style: str | None = None
    """How tool calls are written; None: found out from the chat template."""
    logprobs: str | None = None
    """What to believe of the server's log-probs: ``auto`` (as None) probes; ``model``, ``sampling``, ``unknown``
    declare."""
    context_window: int | None = None
    """Most tokens of prompt and reply together, for every kind; None: the engine's own, `DEFAULT_WINDOW` for one in
    this process."""
    slots: int | None = None
    """Replies sampled at once by an engine in this process; None: `DEFAULT_SLOTS`."""
    threads: int | None = None
    """Threads of an engine in this process; None: `DEFAULT_THREADS`."""
    api_key_env: str = "AGENTENV_API_KEY"
    """Environment variable that holds the server's key; never the key itself."""
    usd_per_million_prompt_tokens: float = 0.0
    usd_per_million_completion_tokens: float = 0.0
    """Prices, for the cost budget and the figures of a run; an engine of one's own may leave them at 0."""

    def __post_init__(self) -> None:
        """Refuse what means nothing, and what this kind of policy would not look at.

        Raises:
            ConfigError: Names the setting, what was expected and what was got.
        """
        check_context_window(self.context_window)
        for name in ("slots", "threads"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= _MOST_AT_ONCE:
                raise ConfigError(f"{option(name)} must be at least 1 and at most {_MOST_AT_ONCE:,}, got {value}.")
        for name in ("url", "model", "tokenizer", "call_style"):
            if getattr(self, name) == "":
                raise ConfigError(f"{option(name)} is given and empty: give it a value, or leave it out.")
        check_call_style(self.call_style)
        for name in ("usd_per_million_prompt_tokens", "usd_per_million_completion_tokens"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{option(name)} must be a price of 0 or more, got {getattr(self, name)}.")
        if self.logprobs is not None and self.logprobs not in LOGPROBS:
            raise UnknownNameError.of("kind of log-probs", self.logprobs, LOGPROBS, where=" (--logprobs)")
        kind = self.kind.partition(":")[0]
        for name in sorted(_OWN_SETTINGS - READS.get(kind, _OWN_SETTINGS)):
            if getattr(self, name) is not None:
                readers = ", ".join(other for other, reads in READS.items() if name in reads)
                raise ConfigError(
                    f"Policy {kind} does not read {option(name)}, got {getattr(self, name)!r}; it is for {readers}."
                )

    def priced(self, identity: PolicyIdentity) -> PolicyIdentity:
        """Add the prices to what a policy is; where none is set, its own stand."""
        if not self.has_prices:
            return identity
        return replace(
            identity,
            usd_per_prompt_token=self.usd_per_million_prompt_tokens / 1e6,
            usd_per_completion_token=self.usd_per_million_completion_tokens / 1e6,
        )

    @property
    def at_once(self) -> int:
        """Episodes at once that suit it.

        For an engine in this process one for each slot, which keeps what it has read of an episode: more would wait for
        one another while their limits of time run.
        """
        if "slots" not in READS.get(self.kind.partition(":")[0], ()):
            return DEFAULT_CONCURRENCY
        return DEFAULT_SLOTS if self.slots is None else self.slots

    @property
    def has_prices(self) -> bool:
        """Whether any token costs anything."""
        return self.usd_per_million_prompt_tokens > 0 or self.usd_per_million_completion_tokens > 0

    def require_prices(self) -> None:
        """Refuse a cost budget that nothing is charged to.

        Raises:
            ConfigError: No price is set.
        """
        if not self.has_prices:
            raise ConfigError(
                "A cost budget needs prices, or it never runs out: give --usd-per-million-prompt-tokens and "
                "--usd-per-million-completion-tokens."
            )

    @property
    def api_key(self) -> str | None:
        """The key, read when needed; None if the variable is not set."""
        return os.environ.get(self.api_key_env) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One collection."""

    suite: str
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    tasks: int = 8
    """Tasks, each with ``group_size`` episodes."""
    group_size: int = 1
    concurrency: int | None = None
    """Episodes at once; None: as many as suit the policy, `at_once`."""
    seed: int = 0
    level: int = 1
    shots: int = 0
    """Worked examples in every prompt."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    budgets: tuple[Budget, ...] = ()
    """The collector's; a wall-clock budget is added where there is none."""
    show_budgets: str = "none"
    compressor: str = "none"
    sandbox: str = "auto"
    mcp: tuple[str, ...] = ()
    """MCP servers whose tools every task gets beside its own: ``NAME=COMMAND`` (in the sandbox) or ``NAME=URL``."""
    mcp_programs: tuple[str, ...] = ()
    """``NAME=FOLDER``: what is carried into the sandbox for a server of ``mcp``."""
    sandbox_warm: int = 0
    """Sandboxes that stand ready before an episode asks for one. Shapes no record."""
    reserve_tokens: int = 64
    output_cap_bytes: int = 16_384
    tool_timeout_s: float = 120.0
    reply_timeout_s: float = 600.0
    max_attempts: int = 3
    snapshots: bool = True
    durability: str = "process"
    """What an acknowledged fact survives: ``process`` (kill -9) or ``power`` (also a power loss; slower)."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, before anything is opened.

        Raises:
            ConfigError: Names the setting, what was expected and what was got.
        """
        self._check_numbers()
        self._check_huge_numbers()
        if self.show_budgets not in SHOW_BUDGETS:
            raise UnknownNameError.of("way to show budgets", self.show_budgets, SHOW_BUDGETS, where=" (--show-budgets)")
        if self.durability not in ("process", "power"):
            raise UnknownNameError.of("durability", self.durability, ("process", "power"), where=" (--durability)")
        check_sampling(self.sampling)
        names = [budget.name for budget in self.budgets]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(
                f"{option('budgets')} gives {', '.join(twice)} twice; each budget may be set once per owner."
            )
        Ledger(self.budgets)
        if any(budget.kind is BudgetKind.COST for budget in self.budgets):
            with blaming(option("budgets"), "cost"):
                self.policy.require_prices()

    def _check_numbers(self) -> None:
        for name in ("tasks", "group_size", "concurrency", "max_attempts", "output_cap_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{option(name)} must be at least 1, got {getattr(self, name)}.")
        for name in ("tool_timeout_s", "reply_timeout_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{option(name)} must be more than 0 seconds and finite, got {getattr(self, name)}.")
        for name in ("seed", "shots", "sandbox_warm"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{option(name)} must not be negative, got {getattr(self, name)}.")
        if self.reserve_tokens < 1:
            raise ConfigError(f"reserve_tokens must be at least 1, got {self.reserve_tokens}.")

    def _check_huge_numbers(self) -> None:
        if self.tasks * self.group_size > MOST_EPISODES:
            raise ConfigError(
                f"{option('tasks')} times {option('group_size')} must be at most {MOST_EPISODES:,} episodes, got "
                f"{self.tasks:,} times {self.group_size:,}: collect into several folders."
            )
        most = {"concurrency": self.at_once, "sandbox_warm": self.sandbox_warm}
        for name, number in most.items():
            if number > MOST_EPISODES:
                raise ConfigError(f"{option(name)} must be at most {MOST_EPISODES:,}, got {number:,}.")
        whole = {name: getattr(self, name) for name in ("seed", "output_cap_bytes", "max_attempts")}
        whole |= {"max_tokens": self.sampling.max_tokens, "top_k": self.sampling.top_k}
        for name, number in whole.items():
            if number >= _TOO_LARGE:
                raise ConfigError(f"{option(name)} must be less than 2 to the power of 62, got {number}.")

    @property
    def at_once(self) -> int:
        """Episodes at once."""
        return self.policy.at_once if self.concurrency is None else self.concurrency

    @property
    def collector_budgets(self) -> tuple[Budget, ...]:
        """The budgets of the collector: a wall-clock one always among them, the context window as one where set."""
        budgets = list(self.budgets)
        window = self.policy.context_window
        if window is not None:
            own = [budget.limit for budget in budgets if budget.kind is BudgetKind.CONTEXT_TOKENS]
            budgets = [budget for budget in budgets if budget.kind is not BudgetKind.CONTEXT_TOKENS]
            budgets.append(_collectors(BudgetKind.CONTEXT_TOKENS, min([window, *own])))
        if all(budget.kind is not BudgetKind.WALL_CLOCK for budget in budgets):
            budgets.append(_collectors(BudgetKind.WALL_CLOCK, DEFAULT_WALL_CLOCK_S))
        return tuple(budgets)

    @property
    def episode_options(self) -> EpisodeOptions:
        """What of this concerns single episodes."""
        return EpisodeOptions(
            sampling=self.sampling,
            budgets=self.collector_budgets,
            show_budgets=self.show_budgets,
            reserve_tokens=self.reserve_tokens,
            output_cap_bytes=self.output_cap_bytes,
            tool_timeout_s=self.tool_timeout_s,
            snapshots=self.snapshots,
        )


def _collectors(kind: BudgetKind, limit: float) -> Budget:
    return Budget(kind=kind, limit=limit, owner=BudgetOwner.COLLECTOR)


def check_call_style(style: str | None) -> None:
    """Refuse a way of writing tool calls that nobody reads.

    Raises:
        UnknownNameError: No such style.
    """
    if style is not None and style not in CALL_STYLES:
        raise UnknownNameError.of("call style", style, CALL_STYLES, where=" (--call-style)")


def check_context_window(window: int | None) -> None:
    """Refuse a window that holds no prompt and reply, or that no engine has.

    Raises:
        ConfigError: Less than 2 tokens, or beyond 31 bits.
    """
    if window is not None and window < 2:
        raise ConfigError(
            f"{option('context_window')} must hold a prompt and a reply, 2 tokens at least; got {window}."
        )
    if window is not None and window >= 1 << 31:
        raise ConfigError(f"{option('context_window')} must be less than 2 to the power of 31 tokens, got {window}.")


def check_sampling(sampling: SamplingParams) -> None:
    """Refuse sampling parameters that no engine takes.

    Raises:
        ConfigError: Names the parameter and its range.
    """
    ranges: Mapping[str, tuple[bool, str]] = {
        "temperature": (0 <= sampling.temperature < math.inf, "temperature >= 0 (0: greedy)"),
        "top_p": (0 < sampling.top_p <= 1, "0 < top_p <= 1 (1: no cut)"),
        "top_k": (sampling.top_k >= 0, "top_k >= 0 (0: no cut)"),
        "min_p": (0 <= sampling.min_p <= 1, "0 <= min_p <= 1 (0: no cut)"),
        "repetition_penalty": (0 < sampling.repetition_penalty < math.inf, "repetition_penalty > 0 (1: off)"),
        "max_tokens": (sampling.max_tokens >= 1, "max_tokens >= 1"),
    }
    for name, (fits, rule) in ranges.items():
        if not fits:
            raise ConfigError(f"{option(name)} = {getattr(sampling, name)} cannot be sampled with: expected {rule}.")


def check_level(suite: Suite, level: int) -> None:
    """Refuse a level that the suite does not have.

    Raises:
        ConfigError: Says which there are.
    """
    if level not in suite.levels:
        have = ", ".join(map(str, suite.levels))
        raise ConfigError(f"{option('level')} {level}: suite {suite.name!r} has no such level; it has {have}.")


def parse_budgets(specs: Sequence[str]) -> tuple[Budget, ...]:
    """Read collector budgets written as ``KIND=LIMIT``.

    Raises:
        ConfigError: Not of that form, or a limit that means nothing.
        UnknownNameError: No such kind.

    >>> parse_budgets(["turns=8"])[0].name
    'collector.turns'
    """
    kinds = {kind.value: kind for kind in BudgetKind}
    budgets: list[Budget] = []
    for spec in specs:
        name, equals, limit = spec.partition("=")
        if not equals:
            raise ConfigError(f"--budget {spec}: expected KIND=LIMIT, such as turns=8 or wall_clock=60.")
        if name not in kinds:
            raise UnknownNameError.of("budget", name, kinds, where=f" (--budget {spec})")
        try:
            number = float(limit)
        except ValueError as error:
            raise ConfigError(f"--budget {spec}: {limit!r} is no number, such as {name}=8 has.") from error
        with blaming("--budget", spec):
            budgets.append(Budget(kind=kinds[name], limit=number, owner=BudgetOwner.COLLECTOR))
    return tuple(budgets)
