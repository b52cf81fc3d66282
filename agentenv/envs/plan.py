"""What an episode is made of: the plan that decides it, the parts that carry it, the options of the collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agentenv.core.blobs import BlobSink
from agentenv.core.compressor import Compressor
from agentenv.core.constraint import Checker
from agentenv.core.policy import PolicyIdentity
from agentenv.core.renderer import Renderer
from agentenv.core.sandbox import SandboxLimits, SandboxProvider, SnapshotLimit
from agentenv.core.store import FactWriter
from agentenv.core.task import Task
from agentenv.envs.networks import NetworkMeasurements
from agentenv.records.budgets import Budget
from agentenv.records.constraints import CheckerSpec
from agentenv.records.messages import Message
from agentenv.records.tokens import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodePlan:
    """Decides one attempt at one episode."""

    episode_id: str
    attempt: int
    suite: str
    task: Task
    task_seed: int
    level: int
    group_id: str
    member: int
    seed: int
    """Of the episode: call seeds are derived from it."""
    demonstrations: tuple[tuple[Message, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeOptions:
    """How the collector wants episodes to be run; the same for all of a run."""

    sampling: SamplingParams = field(default_factory=SamplingParams)
    budgets: tuple[Budget, ...] = ()
    """The collector's. A context budget is added from the engine's window where it is tighter."""
    show_budgets: str = "none"
    """``none``, ``tool_result`` or ``first_message``."""
    reserve_tokens: int = 64
    """Room for a reply that a prompt must leave in the context before the compressor is asked."""
    output_cap_bytes: int = 16_384
    """Most bytes of one tool result that the policy is shown."""
    tool_timeout_s: float = 120.0
    """Longest that one action's tools may take together; and, after them, the look at what they did."""
    compress_timeout_s: float = 60.0
    grace_s: float = 5.0
    """Time that cleaning up may take after a deadline.

    The grace of law 12 is this and the task's ``grade_timeout_s``: an episode with a wall-clock budget of L seconds has
    ended, graded and cleaned up, within L + ``grade_timeout_s`` + ``grace_s``.
    """
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    snapshots: bool = True
    """Whether the workspace is stored by content hash after every action."""
    snapshot_limit: SnapshotLimit = field(default_factory=SnapshotLimit)
    """A workspace beyond it is not stored, nor is any later one of the episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeParts:
    """What all episodes of a run share; their owner opens and closes it."""

    renderer: Renderer
    identity: PolicyIdentity
    """Of the policy that will act: its window and its prices."""
    compressor: Compressor
    checker: Callable[[CheckerSpec], Checker]
    """Makes the checker of a constraint.

    Raises ``ConfigError`` or ``UnknownNameError`` for a spec that cannot be.
    """
    writer: FactWriter
    blobs: BlobSink
    provider: SandboxProvider | None
    """None where no task of the run needs a sandbox."""
    networks: NetworkMeasurements = field(default_factory=NetworkMeasurements)
    """What sandboxes of the provider were found to reach."""
    labels: Sequence[tuple[str, str]] = ()
    """Who owns the sandboxes: run id and the like."""
