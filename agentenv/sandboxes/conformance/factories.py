"""Providers by what a command line or another process can name."""

from __future__ import annotations

import importlib

from agentenv.core.sandbox import SandboxProvider
from agentenv.errors import ConfigError, UnknownNameError
from agentenv.sandboxes.providers import PROVIDERS


def make_provider(factory: str) -> SandboxProvider:
    """Make a provider; nothing is started.

    Args:
        factory: Name of one of ours, or ``module:name`` of something that is called without arguments.

    Raises:
        UnknownNameError: No such name.
        ConfigError: The module cannot be imported, or makes something else.
    """
    module, colon, name = factory.partition(":")
    if not colon and factory not in PROVIDERS:
        raise UnknownNameError.of("sandbox", factory, [*PROVIDERS, "MODULE:NAME"])
    if not colon:
        return PROVIDERS[factory]()
    try:
        made = getattr(importlib.import_module(module), name)()
    except Exception as error:
        raise ConfigError(
            f"Sandbox {factory!r}: expected MODULE:NAME of something that is called without arguments and gives a "
            f"SandboxProvider, but {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, SandboxProvider):
        raise ConfigError(f"Sandbox {factory!r}: expected a SandboxProvider, but it gives a {type(made).__name__}")
    return made
