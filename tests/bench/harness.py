"""The harness as it is used: collector, vLLM policy, template renderer, calculator, and a journal on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from agentenv.compressors.none import NoCompression
from agentenv.constraints.table import make_checker
from agentenv.core.policy import Policy, PolicyIdentity
from agentenv.envs.plan import EpisodeOptions, EpisodeParts
from agentenv.policies.vllm import VllmPolicy
from agentenv.records.axes import BudgetKind, BudgetOwner
from agentenv.records.budgets import Budget
from agentenv.records.tokens import SamplingParams
from agentenv.rollout.collector import CollectOptions, Collector
from agentenv.rollout.cycles import rare_cycle_searches
from agentenv.rollout.schedule import Progress, slots
from agentenv.storage.blobs import FolderBlobs
from agentenv.storage.journal import Journal

from tests.bench.workload import REPLY_TOKENS, Shape, Workload, sums

_OPTIONS = EpisodeOptions(
    sampling=SamplingParams(max_tokens=REPLY_TOKENS),
    budgets=(Budget(kind=BudgetKind.WALL_CLOCK, limit=900.0, owner=BudgetOwner.COLLECTOR),),
)
_MOST_AT_ONCE = 2048
_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """A started policy, and everything to run episodes with it."""

    workload: Workload
    policy: Policy
    identity: PolicyIdentity

    async def run(self, shape: Shape, wrap: Callable[[Policy], Policy] | None = None) -> Path:
        """Collect, with recording on; the journal is opened and closed within.

        Args:
            shape: How much.
            wrap: Puts something around the policy.

        Returns:
            The journal.
        """
        folder = self.workload.scratch / f"run{next(_numbers)}"
        path = folder / "journal" / "main.sqlite"
        async with Journal.open(path) as journal:
            parts = EpisodeParts(
                renderer=self.workload.renderer,
                identity=self.identity,
                compressor=NoCompression(),
                checker=make_checker,
                writer=journal,
                blobs=FolderBlobs(folder / "blobs"),
                provider=None,
            )
            collector = Collector(
                suite=sums(shape.turns),
                policy=self.policy if wrap is None else wrap(self.policy),
                parts=parts,
                episode_options=_OPTIONS,
                options=CollectOptions(tasks=shape.episodes, concurrency=shape.at_once, max_attempts=1),
            )
            todo = slots(tasks=shape.episodes, group_size=1, seed=0)
            with rare_cycle_searches():  # as `agentenv collect` does
                tally = await collector.run(todo, Progress(done=frozenset(), attempts={}))
        if tally.reasons != {"task_budget": shape.episodes}:
            raise AssertionError(f"every episode should end by its budget of turns, got {tally}")
        return path


def vllm_policy(url: str, workload: Workload) -> VllmPolicy:
    """Make the policy; it may have as many requests in flight as any shape here asks for."""
    return VllmPolicy(url, tokenizer=workload.renderer.tokenizer, max_connections=_MOST_AT_ONCE)
