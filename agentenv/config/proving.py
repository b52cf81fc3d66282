"""What can be refused before a run begins, and would else end every episode: hosts and servers, tried once.

A kind of sandbox that does not hold commands to a task's hosts, and a server of a task's tools that does not start, are
found by starting one sandbox as the task's episodes would.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path

from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import SandboxProvider, SandboxSpec
from agentenv.core.task import Task, needs_sandbox
from agentenv.core.tool import ToolContext
from agentenv.envs.networks import NetworkMeasurements
from agentenv.errors import ConfigError, SandboxFault, ToolFault, ended
from agentenv.storage.blobs import FolderBlobs
from agentenv.toolkit.toolbox import Toolbox

_PROVING_S = 120.0
_CAP_BYTES = 16_384
_REMEDY = (
    "What a server over stdio runs must be in the sandbox: below /usr, among the task's files, or its program "
    "(mcp_stdio(program=…), and files=server.files of the task). One at an address must be running."
)


async def prove_tasks(tasks: Iterable[Task], provider: SandboxProvider | None) -> None:
    """Open the surroundings of each task once, and close them again.

    Args:
        tasks: One for each list of hosts and each server that the run has; see `config.survey.Survey.to_prove`.
        provider: Of the run's sandboxes; None where no task needs one.

    Raises:
        ConfigError: A server does not start, is not what was described, or a task's files cannot be had.
        SandboxFault: The sandbox does not start, or does not hold commands to the hosts; names the task.
    """
    for task in tasks:
        try:
            await _prove(task, provider, Deadline.after(_PROVING_S, f"the trial of task {task.id}"))
        except SandboxFault as fault:
            raise SandboxFault.permanent(f"Task {task.id!r}: {fault}") from fault
        except ToolFault as fault:
            remedy = f" {_REMEDY}" if fault.retryable else ""  # else the fault has its own
            raise ConfigError(f"Task {task.id!r}: {ended(fault)}{remedy}") from fault


async def _prove(task: Task, provider: SandboxProvider | None, deadline: Deadline) -> None:
    toolbox = Toolbox(task.tools)
    async with AsyncExitStack() as stack:
        sandbox = None
        if needs_sandbox(task) and provider is not None:
            spec = SandboxSpec(files=task.files, network=task.network, labels={"episode": "none, a trial"})
            sandbox = await stack.enter_async_context(await provider.lease(spec, deadline))
            await NetworkMeasurements().of(sandbox, task.network)
        blobs = FolderBlobs(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentenv-trial-"))))
        resources = await stack.enter_async_context(AsyncExitStack())
        context = ToolContext(sandbox=sandbox, blobs=blobs, output_cap_bytes=_CAP_BYTES, resources=resources)
        await toolbox.open(context, deadline)
