"""The limit of files in a workspace, for where the kernel has none: counted while jobs run.

The count is one system call, whatever the workspace holds. Between two counts a job may go over the limit by what it
makes in that time.
"""

from __future__ import annotations

from agentenv.sandboxes.supervisor.jobs import FOREVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentenv.sandboxes.supervisor.loop import Loop
    from agentenv.sandboxes.supervisor.workspace import Workspace

_PERIOD_S = 0.02


class Crowding:
    """Ends the jobs that run when there are too many files and more than when they began: one of them made them.

    A job that begins with too many may remove some.
    """

    def __init__(self, loop: Loop, workspace: Workspace) -> None:
        self._loop = loop
        self._workspace = workspace
        self._next = loop.now()
        self._before: dict[int, int] = {}
        """Files there were when each job was first seen."""

    @property
    def wake_at(self) -> float:
        """When to count next."""
        return self._next if self._loop.jobs else FOREVER

    def on_time(self) -> None:
        """Count, and end who is to be ended."""
        self._next = self._loop.now() + _PERIOD_S
        files = self._workspace.count()
        self._before = {job: min(files, self._before.get(job, files)) for job in self._loop.jobs}
        if not self._workspace.overcrowded:
            return
        for job, before in self._before.items():
            if files > before:
                self._loop.jobs[job].end_for(
                    b"the workspace may have %d files and has more" % self._workspace.max_files
                )
