"""The kinds of sandboxes there are, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from agentenv.core.sandbox import SandboxProvider


def _bwrap() -> SandboxProvider:
    from agentenv.sandboxes.bwrap import BwrapProvider

    return BwrapProvider()


PROVIDERS: Mapping[str, Callable[[], SandboxProvider]] = MappingProxyType({"bwrap": _bwrap})
"""Name to factory. Making a provider starts nothing and needs nothing; `SandboxProvider.probe` says if it works."""
