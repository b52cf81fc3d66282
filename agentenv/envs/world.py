"""What the actions of one episode work on: runs the tools of a turn, and looks at what they did.

Owned here: the sandbox, the tools' resources, what was last seen of the workspace and of what the rules watch. Not
owned: when to act, what that costs, what is written down.
"""

from __future__ import annotations

import errno
from contextlib import AsyncExitStack
from typing import NamedTuple

from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.sandbox import Sandbox, SandboxSpec
from agentenv.core.task import needs_sandbox
from agentenv.core.tool import ToolContext
from agentenv.engine.effects import Act
from agentenv.engine.observation import executed_calls
from agentenv.envs.plan import EpisodeOptions, EpisodeParts, EpisodePlan
from agentenv.envs.rules import RuleWatch
from agentenv.errors import SandboxFault, ToolFault, ended
from agentenv.records.constraints import Breach
from agentenv.records.episode import NetworkReport
from agentenv.records.messages import Spill, ToolResult
from agentenv.toolkit.toolbox import Toolbox


class Deed(NamedTuple):
    """What an action did."""

    results: tuple[ToolResult, ...]
    """One per call, in order."""
    breaches: tuple[Breach, ...] = ()
    workspace: dict[str, Spill] | None = None
    """The files, where they are others than before; None where they are not, or were not looked at."""


class World:
    """The surroundings of one episode, from `open` to `aclose`."""

    def __init__(
        self, plan: EpisodePlan, parts: EpisodeParts, options: EpisodeOptions, *, toolbox: Toolbox, rules: RuleWatch
    ) -> None:
        """Nothing is started."""
        self.rules = rules
        self.sandbox: Sandbox | None = None
        """None before `open`, and where the task needs none."""
        self.network: NetworkReport | None = None
        """What the sandbox can reach; None as `sandbox` is."""
        self.workspace: dict[str, Spill] = {}
        """The files as they were stored last."""
        self.too_large = False
        """Whether the workspace has outgrown what is stored of one."""
        self._plan = plan
        self._parts = parts
        self._options = options
        self._toolbox = toolbox
        self._resources = AsyncExitStack()
        self._context: ToolContext | None = None

    async def open(self, deadline: Deadline) -> None:
        """Lease the sandbox, and look at what the constraints watch.

        Raises:
            SandboxFault: There is no sandbox to be had, it is gone, or its kind does not hold commands to the hosts
                that the task names.
            ToolFault: A server that a tool has of its own cannot be reached.
        """
        if needs_sandbox(self._plan.task):
            self.sandbox = await self._lease(deadline)
            self.network = await self._parts.networks.of(self.sandbox, self._plan.task.network)
            self.workspace = await self._snapshot() or {}
        self._context = ToolContext(
            sandbox=self.sandbox,
            blobs=self._parts.blobs,
            output_cap_bytes=self._options.output_cap_bytes,
            resources=self._resources,
        )
        await self._toolbox.open(self._context, deadline)
        await self.rules.observe(self.sandbox)

    async def act(self, effect: Act, deadline: Deadline) -> Deed:
        """Run the tools of a turn, and look at what they did: to what the rules watch, and to the workspace.

        Args:
            effect: The action.
            deadline: Of the episode. Tools and look have a limit of their own each, if that comes first.

        Raises:
            ToolFault, SandboxFault: It could not be done, or took longer than its own limit.
            DeadlineReached: ``deadline`` fired.
        """
        results = await self._run_tools(effect, deadline) if effect.parsed.calls else ()
        if self.sandbox is None and not self.rules.watched:
            return Deed(results)
        executed = executed_calls(effect.parsed, results)
        if not results:
            return Deed(results, await self.rules.judge(effect.turn, executed, self.sandbox))
        limit = self._options.tool_timeout_s
        own = deadline.sooner(limit, "the look at what an action did")
        try:
            async with own.enforce():
                breaches = await self.rules.judge(effect.turn, executed, self.sandbox)
                return Deed(results, breaches, await self._snapshot())
        except DeadlineReached as error:
            raise _named(error, own, deadline) or SandboxFault(
                f"turn {effect.turn}: storing the workspace and looking at what the rules watch did not end within "
                f"{limit:g} s; raise --tool-timeout, or store no workspaces (--no-snapshots)"
            ) from error

    async def aclose(self) -> None:
        """End everything that was started. May be called twice; raises what closing raises."""
        await self._resources.aclose()

    async def _run_tools(self, effect: Act, deadline: Deadline) -> tuple[ToolResult, ...]:
        assert self._context is not None, "the world is opened before anything is done in it"
        calls = effect.parsed.calls
        limit = self._options.tool_timeout_s
        own = deadline.sooner(limit, "the tools of one action")
        try:
            return await self._toolbox.run(
                calls, context=self._context, deadline=own, refuse_after=effect.allowed_calls
            )
        except DeadlineReached as error:
            raise _named(error, own, deadline) or ToolFault(
                f"turn {effect.turn}: the tools of one action ({', '.join(call.name for call in calls)}) did not end "
                f"within {limit:g} s: {ended(error)} Give the tool a limit of its own (timeout_s), which the policy is "
                "told of, or raise --tool-timeout."
            ) from error

    async def _lease(self, deadline: Deadline) -> Sandbox:
        task = self._plan.task
        provider = self._parts.provider
        if provider is None:
            raise SandboxFault.permanent(f"task {task.id} needs a sandbox and the run has no provider of one")
        spec = SandboxSpec(
            files=task.files,
            network=task.network,
            limits=self._options.limits,
            labels={**dict(self._parts.labels), "episode": self._plan.episode_id},
        )
        sandbox = await provider.lease(spec, deadline)
        self._resources.push_async_callback(sandbox.aclose)
        return sandbox

    async def _snapshot(self) -> dict[str, Spill] | None:
        if self.sandbox is None or not self._options.snapshots or self.too_large:
            return None
        try:
            after = await self.sandbox.snapshot(self._parts.blobs, limit=self._options.snapshot_limit)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise SandboxFault(f"the workspace could not be stored: {error}") from error
            self.too_large = True
            return None
        if after == self.workspace:
            return None
        self.workspace = after
        return after


def _named(error: DeadlineReached, own: Deadline, episode: Deadline) -> DeadlineReached | None:
    """Give the error if a deadline fired that is not an action's own, but the episode's or whoever's; else None."""
    return None if error.deadline is own and own is not episode else error
