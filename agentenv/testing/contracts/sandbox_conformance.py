"""The conformance suite of sandboxes as tests, for any provider: hostile commands, tried for real.

Use, in a test module::

    class TestMySandbox(SandboxConformance):
        factory = "my_package.sandboxes:MyProvider"

        @pytest.fixture
        async def provider(self):
            async with MyProvider() as provider:
                yield provider

Each check of `agentenv.sandboxes.conformance` is a test. It passes if it finds what is expected: that it holds, or, for
what the provider's ``identity()["weak"]`` says or ``known`` names, that it does not. ``agentenv doctor --conformance
my_package.sandboxes:MyProvider`` runs the same checks, without pytest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import ClassVar

import pytest

from agentenv.core.sandbox import SandboxProvider
from agentenv.sandboxes.conformance.catalogue import CHECKS
from agentenv.sandboxes.conformance.check import Bench
from agentenv.sandboxes.conformance.factories import make_provider
from agentenv.sandboxes.conformance.running import run_check


class SandboxConformance:
    """What hostile commands are not to achieve."""

    factory: ClassVar[str]
    """``module:name`` of what makes the provider, called without arguments (some checks start a harness of their own),
    or the name of one of ours."""
    known: ClassVar[tuple[str, ...]] = ()
    """Names of checks that do not hold, beyond what the identity says."""

    @pytest.fixture
    async def provider(self) -> AsyncGenerator[SandboxProvider]:
        """Give the provider under test; may be overridden."""
        async with make_provider(self.factory) as provider:
            yield provider

    @pytest.mark.parametrize("name", CHECKS)
    async def test_check(self, provider: SandboxProvider, name: str) -> None:
        identity = await asyncio.to_thread(provider.identity)
        bench = Bench(provider=provider, factory=self.factory)
        result = await run_check(CHECKS[name], bench, identity, known=self.known)
        assert result.as_expected, (
            f"{name} was expected to be: {result.expected.what} {result.expected.reason}\n"
            f"what it asks for: {result.check.expected}\nwhat was found: {result.finding.evidence}"
        )
