"""One collection, opened: everything it needs is owned here and closed here."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentenv.config.ingredients import Ingredients, find_needs
from agentenv.config.mcp import with_servers
from agentenv.config.options import blaming, option
from agentenv.config.policies import Acting, build_policy
from agentenv.config.run_config import RunConfig, check_level
from agentenv.config.sandboxes import check_provider_name
from agentenv.core.policy import PolicyIdentity
from agentenv.core.task import Suite
from agentenv.envs.plan import EpisodeParts
from agentenv.errors import ConfigError
from agentenv.registry import load_compressor, load_suite
from agentenv.rollout.collector import CollectOptions, Collector, Observer, Tally
from agentenv.rollout.cycles import rare_cycle_searches
from agentenv.rollout.schedule import Progress, progress_of, slots
from agentenv.storage.run_folder import RunFolder


@dataclass(slots=True, kw_only=True)
class Run:
    """An open collection."""

    config: RunConfig
    manifest: dict[str, Any]
    folder: RunFolder
    identity: PolicyIdentity
    """What the policy was found to be."""
    collector: Collector
    before: Progress
    """What the folder already held."""

    async def collect(self) -> Tally:
        """Run every episode that is not done.

        Raises:
            HarnessFault: The journal cannot be written.
        """
        todo = slots(tasks=self.config.tasks, group_size=self.config.group_size, seed=self.config.seed)
        with rare_cycle_searches():
            return await self.collector.run(todo, self.before)


@asynccontextmanager
async def open_run(
    config: RunConfig, out: Path, *, resume: bool = False, observer: Observer | None = None
) -> AsyncGenerator[Run]:
    """Open everything a collection needs, check it, and close it at the end.

    Raises:
        ConfigError: A setting cannot work, or a resumed run was made with others.
        Fault: The policy server or the sandbox does not work.
        RunInUse: Another live process writes to ``out``.
    """
    suite = load_suite(config.suite)
    with blaming(option("compressor"), config.compressor):
        compressor = load_compressor(config.compressor)
    async with AsyncExitStack() as stack:
        acting = await build_policy(config.policy)
        await stack.enter_async_context(acting.policy)
        identity = config.policy.priced(await acting.policy.start())
        _refuse_early(config, suite, acting)
        suite = await with_servers(suite, config)
        survey, provider = await find_needs(config, suite, tasks=config.tasks, stack=stack)
        ingredients = Ingredients(
            config=config,
            suite=suite,
            compressor=compressor,
            renderer=acting.renderer,
            tokenizer_source=acting.source,
            identity=identity,
            survey=survey,
            provider=provider,
        )
        manifest = ingredients.manifest()
        folder = stack.enter_context(_folder(out, manifest, config, resume=resume))
        with folder.reader() as reader:
            before = progress_of(reader)
        parts = await ingredients.parts(folder, stack)
        yield Run(
            config=config,
            manifest=manifest,
            folder=folder,
            identity=identity,
            collector=_collector(config, suite, acting, parts, observer),
            before=before,
        )


def _folder(out: Path, manifest: dict[str, Any], config: RunConfig, *, resume: bool) -> RunFolder:
    opener = RunFolder.resume if resume else RunFolder.create
    return opener(out, manifest, durability="power" if config.durability == "power" else "process")


def _refuse_early(config: RunConfig, suite: Suite, acting: Acting) -> None:
    """Refuse, before any folder is made, what every episode would fail for.

    Raises:
        UsageError: No such script, level or sandbox, more tasks than variants, or fewer worked examples than asked for.
    """
    if config.tasks > suite.size:
        raise ConfigError(
            f"{option('tasks')} {config.tasks}: suite {suite.name!r} has {suite.size} variants of each level; the "
            "rest would repeat the first ones. Ask for fewer, or for repeats of each with --group-size."
        )
    check_level(suite, config.level)
    acting.policy.for_task(suite.task(config.seed, config.level), config.seed)
    check_provider_name(config.sandbox)
    if config.shots:
        with blaming(option("shots"), config.shots):
            suite.demonstrations(config.shots, config.level)


def _collector(
    config: RunConfig, suite: Suite, acting: Acting, parts: EpisodeParts, observer: Observer | None
) -> Collector:
    return Collector(
        suite=suite,
        policy=acting.policy,
        parts=parts,
        episode_options=config.episode_options,
        options=CollectOptions(
            tasks=config.tasks,
            group_size=config.group_size,
            concurrency=config.at_once,
            seed=config.seed,
            level=config.level,
            shots=config.shots,
            max_attempts=config.max_attempts,
            reply_timeout_s=config.reply_timeout_s,
        ),
        observer=observer,
    )
