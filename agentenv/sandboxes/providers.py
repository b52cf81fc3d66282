"""The kinds of sandboxes there are, by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

from agentenv.core.sandbox import SandboxProvider


def _bwrap() -> SandboxProvider:
    from agentenv.sandboxes.bwrap import BwrapProvider

    return BwrapProvider()


def _namespaces() -> SandboxProvider:
    from agentenv.sandboxes.namespaces import NamespacesProvider

    return NamespacesProvider()


def _docker() -> SandboxProvider:
    from agentenv.sandboxes.docker import DockerProvider

    return DockerProvider(
        image=os.environ.get("AGENTENV_DOCKER_IMAGE") or "host", runtime=os.environ.get("AGENTENV_DOCKER_RUNTIME")
    )


def _landlock() -> SandboxProvider:
    from agentenv.sandboxes.landlock import LandlockProvider

    return LandlockProvider()


def _none() -> SandboxProvider:
    from agentenv.sandboxes.unconfined import UnconfinedProvider

    return UnconfinedProvider()


PROVIDERS: Mapping[str, Callable[[], SandboxProvider]] = MappingProxyType(
    {"bwrap": _bwrap, "namespaces": _namespaces, "docker": _docker, "landlock": _landlock, "none": _none}
)
"""Name to factory, the weak ones last. Making a provider starts nothing and needs nothing; `SandboxProvider.probe` says
if it works."""
