"""Sandboxes that stand ready before an episode asks for one."""

from __future__ import annotations

import pytest
from agentenv.config.run_config import RunConfig
from agentenv.config.sandboxes import open_provider
from agentenv.core.sandbox import SandboxSpec
from agentenv.errors import ConfigError
from agentenv.sandboxes.pool import PooledProvider
from agentenv.testing.contracts.sandbox_calls import patience, run


async def test_pool_is_before_the_provider_where_one_is_asked_for():
    """What goes into the manifest is the same."""
    async with await open_provider("bwrap") as plain, await open_provider("bwrap", warm=1, at_once=2) as pool:
        assert isinstance(pool, PooledProvider)
        assert not isinstance(plain, PooledProvider)
        assert pool.identity() == plain.identity()
        async with await pool.lease(SandboxSpec(), patience()) as sandbox:
            assert (await run(sandbox, "true")).exit_code == 0


def test_fewer_than_none_are_refused():
    with pytest.raises(ConfigError, match="sandbox-warm"):
        RunConfig(suite="repair", sandbox_warm=-1)
