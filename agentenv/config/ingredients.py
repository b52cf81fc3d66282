"""What a run is made of, found before its folder is made: the one way there for collections and for environments."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from agentenv.config.manifest import build_manifest
from agentenv.config.proving import prove_tasks
from agentenv.config.run_config import RunConfig
from agentenv.config.sandboxes import open_provider
from agentenv.config.survey import Survey, survey_run
from agentenv.constraints.table import make_checker
from agentenv.core.compressor import Compressor
from agentenv.core.policy import PolicyIdentity
from agentenv.core.renderer import Renderer
from agentenv.core.sandbox import SandboxProvider
from agentenv.core.task import Suite
from agentenv.envs.plan import EpisodeParts
from agentenv.storage.run_folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """Everything that shapes the tokens of a run."""

    config: RunConfig
    suite: Suite
    compressor: Compressor
    renderer: Renderer
    tokenizer_source: str
    """Where the renderer's tokenizer was loaded from."""
    identity: PolicyIdentity
    """Of the policy that will act, with its prices."""
    survey: Survey
    provider: SandboxProvider | None
    """None where no task that was surveyed needs a sandbox."""

    def manifest(self) -> dict[str, Any]:
        """Describe the run (law 13)."""
        return build_manifest(
            self.config,
            suite=self.suite,
            survey=self.survey,
            identity=self.identity,
            renderer=self.renderer.identity,
            compressor=self.compressor,
            provider=self.provider,
            tokenizer_source=self.tokenizer_source,
        )

    async def parts(self, folder: RunFolder, stack: AsyncExitStack) -> EpisodeParts:
        """Open what the episodes of the run share.

        Args:
            folder: To write into.
            stack: Closes the journal.

        Raises:
            RunInUse: Another live process writes there.
        """
        return EpisodeParts(
            renderer=self.renderer,
            identity=self.identity,
            compressor=self.compressor,
            checker=make_checker,
            writer=await stack.enter_async_context(folder.journal()),
            blobs=folder.blobs,
            provider=self.provider,
            labels=(("run", folder.manifest["run"]["id"]),),
        )


async def find_needs(
    config: RunConfig, suite: Suite, *, tasks: int, stack: AsyncExitStack
) -> tuple[Survey, SandboxProvider | None]:
    """Find out what the first tasks of a run need, and open it.

    Args:
        config: Of the run.
        suite: Makes the tasks.
        tasks: How many to look at.
        stack: Closes the provider of sandboxes.

    Returns:
        What was found, and the provider; None where no task needs a sandbox.

    Raises:
        ConfigError: A cost budget has no prices; a server that stands behind tools does not start.
        SandboxFault: A task needs a sandbox, and none works here, or not with the hosts it names.
    """
    survey = await survey_run(suite, seed=config.seed, tasks=tasks, level=config.level)
    if survey.has_cost_budget:
        config.policy.require_prices()
    provider = None
    if survey.needs_sandbox:
        provider = await open_provider(config.sandbox, warm=config.sandbox_warm, at_once=config.at_once)
        await stack.enter_async_context(provider)
    await prove_tasks(survey.to_prove, provider)
    return survey, provider
