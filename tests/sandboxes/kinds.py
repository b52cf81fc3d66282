"""The kinds of sandboxes that hold everything a sandbox promises, without a daemon: what the tests here run over."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from agentenv.sandboxes.bwrap import BwrapProvider
from agentenv.sandboxes.namespaces import NamespacesProvider
from agentenv.sandboxes.supervised_provider import SupervisedProvider

KINDS: Mapping[str, type[SupervisedProvider]] = MappingProxyType(
    {"bwrap": BwrapProvider, "namespaces": NamespacesProvider}
)
