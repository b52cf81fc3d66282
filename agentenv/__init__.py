"""Multi-turn agent environments that leave a token-exact record of every step.

The names below are what most programs need; each is imported from its module when it is first used, so importing the
package costs next to nothing and does nothing. Everything else is public where it lives: contracts in
`agentenv.core`, data in `agentenv.records`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentenv.config.environments import EnvConfig, make_agent_env, open_environment
    from agentenv.config.reading import stored_run
    from agentenv.config.run import open_run
    from agentenv.config.run_config import PolicyConfig, RunConfig
    from agentenv.core.task import Task
    from agentenv.records.episode import EpisodeRecord
    from agentenv.records.tokens import SamplingParams
    from agentenv.registry import load_suite
    from agentenv.toolkit.function_tool import tool
    from agentenv.toolkit.suite import seeded_suite

__version__ = "0.1.0"

_HOMES = {
    "EnvConfig": "agentenv.config.environments",
    "EpisodeRecord": "agentenv.records.episode",
    "PolicyConfig": "agentenv.config.run_config",
    "RunConfig": "agentenv.config.run_config",
    "SamplingParams": "agentenv.records.tokens",
    "Task": "agentenv.core.task",
    "load_suite": "agentenv.registry",
    "make_agent_env": "agentenv.config.environments",
    "open_environment": "agentenv.config.environments",
    "open_run": "agentenv.config.run",
    "seeded_suite": "agentenv.toolkit.suite",
    "stored_run": "agentenv.config.reading",
    "tool": "agentenv.toolkit.function_tool",
}

__all__ = [
    "EnvConfig",
    "EpisodeRecord",
    "PolicyConfig",
    "RunConfig",
    "SamplingParams",
    "Task",
    "__version__",
    "load_suite",
    "make_agent_env",
    "open_environment",
    "open_run",
    "seeded_suite",
    "stored_run",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
