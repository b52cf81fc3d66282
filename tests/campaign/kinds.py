"""Which sandboxes a campaign can be over, and which troubles each can have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from agentenv.core.sandbox import SandboxProvider
from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.sandboxes.docker import DockerProvider
from agentenv.sandboxes.namespaces import NamespacesProvider

from tests.campaign.troubles import TROUBLES

PROVIDERS: Mapping[str, Callable[[Path], SandboxProvider]] = MappingProxyType(
    {
        "bwrap": lambda root: BwrapProvider(workspace_root=root),
        "namespaces": lambda root: NamespacesProvider(workspace_root=root),
        "docker": lambda root: DockerProvider(workspace_root=root),
    }
)
"""Name to what makes a provider with its workspaces in a folder."""


ALLOWANCE_S: Mapping[str, float] = MappingProxyType({"bwrap": 0.0, "namespaces": 0.0, "docker": 10.0})
"""For the start of one, where several start at once on a busy machine."""


def kinds_for(sandbox: str) -> tuple[str, ...]:
    """Give the kinds of trouble; a container's launcher is the engine's, and not an episode's to lose."""
    return tuple(kind for kind in TROUBLES if sandbox != "docker" or kind != "loses its launcher")
