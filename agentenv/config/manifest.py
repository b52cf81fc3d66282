"""The manifest of a run: versions and content hashes of everything that shaped its tokens (law 13)."""

from __future__ import annotations

import datetime
import platform
import socket
import uuid
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from agentenv import __version__
from agentenv.config.run_config import RunConfig
from agentenv.config.survey import Survey
from agentenv.core.compressor import Compressor
from agentenv.core.policy import PolicyIdentity
from agentenv.core.renderer import RendererIdentity
from agentenv.core.sandbox import SandboxProvider
from agentenv.core.task import Suite
from agentenv.records.facts import SCHEMA_VERSION

_SHAPING = ("jinja2", "tokenizers", "msgspec")
"""Libraries whose version can change what tokens come out."""


def build_manifest(
    config: RunConfig,
    *,
    suite: Suite,
    survey: Survey,
    identity: PolicyIdentity,
    renderer: RendererIdentity,
    compressor: Compressor,
    provider: SandboxProvider | None,
    tokenizer_source: str,
) -> dict[str, Any]:
    """Describe a run as plain JSON values; what it says of tasks and tools is true of all that were surveyed.

    What may differ when a run is resumed stands under keys named in `storage.manifest.RESUME_MAY_DIFFER`.
    """
    policy = _plain(identity)
    endpoint = policy.pop("endpoint")
    return {
        "agentenv": __version__,
        "schema": SCHEMA_VERSION,
        "suite": _suite(config, suite, survey),
        "policy": policy,
        "renderer": _plain(renderer),
        "compressor": {"name": compressor.name, "sha256": compressor.sha256},
        "sandbox": None if provider is None else provider.identity(),
        "sampling": _plain(config.sampling),
        "budgets": {budget.name: budget.limit for budget in config.collector_budgets},
        "episode": _episode(config),
        "libraries": {name: _version(name) for name in _SHAPING},
        "max_attempts": config.max_attempts,
        "concurrency": config.at_once,
        "paths": {"endpoint": endpoint, "suite": config.suite},
        "run": _run(config, tokenizer_source),
    }


def _suite(config: RunConfig, suite: Suite, survey: Survey) -> dict[str, Any]:
    """Say which tasks were asked for, and what they were found to be."""
    return {
        "name": suite.name,
        "sha256": suite.sha256,
        "level": config.level,
        "seed": config.seed,
        "tasks": config.tasks,
        "group_size": config.group_size,
        "shots": config.shots,
        "tasks_sha256": survey.sha256,
        "tools": survey.tools,
        "tool_servers": survey.servers,
    }


def _episode(config: RunConfig) -> dict[str, Any]:
    """Say what of the options of an episode the policy can see."""
    return {
        "show_budgets": config.show_budgets,
        "reserve_tokens": config.reserve_tokens,
        "output_cap_bytes": config.output_cap_bytes,
        "tool_timeout_s": config.tool_timeout_s,
        "snapshots": config.snapshots,
    }


def _run(config: RunConfig, tokenizer_source: str) -> dict[str, Any]:
    """Say when and where it began, and how."""
    return {
        "id": uuid.uuid4().hex,
        "created_at": datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "reply_timeout_s": config.reply_timeout_s,
        "durability": config.durability,
        "policy": config.policy.kind,
        "tokenizer": tokenizer_source,
        "call_style": config.policy.call_style,
    }


def _plain(value: object) -> dict[str, Any]:
    return msgspec.to_builtins(value)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
