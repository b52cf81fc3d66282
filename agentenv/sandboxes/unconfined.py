"""No sandbox at all: commands run as ordinary processes of this machine, with limits of their own and an end.

For machines that offer nothing else, and for commands one would run anyway. As root they run as another user.
"""

from __future__ import annotations

from pathlib import Path

from agentenv.sandboxes.host_system import UNCONFINED_UID
from agentenv.sandboxes.landlock import BesideLauncher
from agentenv.sandboxes.supervised_provider import SupervisedProvider


class UnconfinedLauncher(BesideLauncher):
    """See the module."""

    name = "none"
    user_of_root = UNCONFINED_UID

    def identity(self) -> dict[str, str]:
        missing = [
            "nothing is confined: commands read and change whatever the user may, and reach the network",
            "a command that kills what watches over it may live on",
            *self.shortcomings(),
        ]
        return {**super().identity(), "network": "that of this machine", "weak": "; ".join(missing)}


class UnconfinedProvider(SupervisedProvider):
    """Leases ordinary processes; for who asks for it by name (``none``)."""

    def __init__(self, *, workspace_root: Path | None = None) -> None:
        """Make a provider; nothing is started.

        Args:
            workspace_root: Folder for the workspaces, which the commands' user can reach; None is the system's for
                temporary files.
        """
        super().__init__(UnconfinedLauncher(), workspace_root=workspace_root)
