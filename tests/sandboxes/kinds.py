"""The kinds of sandboxes that need no daemon: what the tests here run over."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.sandboxes.landlock import LandlockProvider
from agentenv.sandboxes.namespaces import NamespacesProvider
from agentenv.sandboxes.supervised_provider import SupervisedProvider
from agentenv.sandboxes.unconfined import UnconfinedProvider

KINDS: Mapping[str, type[SupervisedProvider]] = MappingProxyType(
    {"bwrap": BwrapProvider, "namespaces": NamespacesProvider}
)
"""Those that hold everything a sandbox promises."""

WEAK: Mapping[str, type[SupervisedProvider]] = MappingProxyType(
    {"landlock": LandlockProvider, "none": UnconfinedProvider}
)
"""Those that confine little or nothing; but they end, and leave nothing behind."""

ALL: Mapping[str, type[SupervisedProvider]] = MappingProxyType({**KINDS, **WEAK})
