"""``shell``: one command line in the sandbox."""

from __future__ import annotations

from typing import Annotated

import msgspec
from agentenv.core.blobs import BlobSink
from agentenv.core.deadline import Deadline
from agentenv.core.sandbox import Execution, Output
from agentenv.core.tool import Result, ToolContext
from agentenv.records.axes import CallStatus
from agentenv.records.messages import Spill
from agentenv.toolkit import sandbox_of, tool
from agentenv.toolkit.off_loop import off_loop
from agentenv.toolkit.output import excerpt
from msgspec import Meta

from agentenv_tools.arguments import DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S, text_argument, within


@tool(needs_sandbox=True, example={"command": "ls -l"})
async def shell(
    command: str,
    context: ToolContext,
    deadline: Deadline,
    timeout_s: Annotated[float, Meta(gt=0, le=MAX_TIMEOUT_S)] = DEFAULT_TIMEOUT_S,
) -> Result:
    """Run a command line with /bin/sh in the workspace. Every process it starts ends with it.

    Args:
        command: The command line.
        timeout_s: Seconds after which it is stopped.
        context: The episode's; filled in, not shown.
        deadline: When the harness stops waiting; filled in, not shown.
    """
    limit_s = within(timeout_s, deadline)
    execution = await sandbox_of(context).run(
        text_argument("command", command), deadline=deadline, timeout_s=limit_s, blobs=context.blobs
    )
    size = sum(len(stream.head) + len(stream.tail) for stream in (execution.stdout, execution.stderr))
    return await off_loop(size, _shown, execution, limit_s, context.blobs)


def _shown(execution: Execution, limit_s: float, blobs: BlobSink) -> Result:
    """Put stdout, stderr and the exit code into one text; the exit code comes last, where no cut reaches it."""
    out, out_dropped = excerpt(execution.stdout)
    err, err_dropped = excerpt(execution.stderr)
    parts = [_line(out)] if out else []
    if err:
        parts += ["[stderr]\n", _line(err)]
    if not parts:
        parts.append("[no output]\n")
    if execution.timed_out:
        parts.append(f"[stopped after {limit_s:.3g} s] ")
    elif execution.killed:
        parts.append(f"[killed {execution.killed} process{'es' if execution.killed > 1 else ''} left running]\n")
    parts.append(f"[exit code {execution.exit_code}]")
    return Result(
        text="".join(parts),
        status=CallStatus.TIMEOUT if execution.timed_out else CallStatus.OK,
        exit_code=execution.exit_code,
        bytes_dropped=out_dropped + err_dropped,
        full_output=_kept(execution, blobs),
    )


def _kept(execution: Execution, blobs: BlobSink) -> Spill | None:
    """Say where the whole output is if the sandbox cut it: the stream itself, or an index of both streams."""
    streams = {"stdout": execution.stdout, "stderr": execution.stderr}
    written = {name: stream for name, stream in streams.items() if stream.total_bytes}
    if not any(stream.spill for stream in written.values()):
        return None
    spills = {name: _spill(stream, blobs) for name, stream in written.items()}
    return blobs.put(msgspec.json.encode(spills)) if len(spills) > 1 else next(iter(spills.values()))


def _spill(stream: Output, blobs: BlobSink) -> Spill:
    return stream.spill or blobs.put(stream.head + stream.tail)


def _line(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"
