"""The sandbox provider of a run: the one named, or the first that is proven to work here."""

from __future__ import annotations

from agentenv.core.sandbox import SandboxProvider, SandboxSpec
from agentenv.errors import SandboxFault, UnknownNameError

AUTO = ("bwrap", "namespaces")
"""Providers that ``auto`` tries, in order. Each is proven by starting it once."""


def check_provider_name(name: str) -> None:
    """Refuse a name that no provider has, whether or not a sandbox will be needed.

    Raises:
        UnknownNameError: No such provider.
    """
    from agentenv.sandboxes.providers import PROVIDERS

    if name != "auto" and name not in PROVIDERS:
        raise UnknownNameError.of("sandbox", name, ["auto", *PROVIDERS], where=" (--sandbox)")


async def open_provider(name: str, *, warm: int = 0, at_once: int = 1) -> SandboxProvider:
    """Open a provider that works, with a pool before it where sandboxes are to stand ready.

    Args:
        name: As `choose_provider`.
        warm: How many stand ready; 0 is no pool.
        at_once: How many are leased at the same time; together with the warm ones, the most there ever are.

    Raises:
        UnknownNameError, SandboxFault: As `choose_provider`.
    """
    provider = await choose_provider(name)
    if not warm:
        return provider
    from agentenv.sandboxes.pool import PooledProvider

    pool = PooledProvider(provider, warm=warm, most=at_once + warm)
    pool.expect(SandboxSpec())
    return pool


async def choose_provider(name: str) -> SandboxProvider:
    """Open a provider and prove that it works.

    Raises:
        UnknownNameError: No such provider.
        SandboxFault: It does not work here; says why and what to do.
    """
    from agentenv.sandboxes.providers import PROVIDERS

    check_provider_name(name)
    reasons: list[str] = []
    for candidate in AUTO if name == "auto" else (name,):
        provider = PROVIDERS[candidate]()
        status = await provider.probe()
        if status.works:
            return provider
        reasons.append(f"{candidate}: {status.detail}")
        await provider.aclose()
    which = "No sandbox works" if name == "auto" else f"--sandbox {name} does not work"
    raise SandboxFault.permanent(f"{which} here. {'; '.join(reasons)}")
