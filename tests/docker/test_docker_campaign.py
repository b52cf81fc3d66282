"""Law 12 in containers: each trouble of ``tests/campaign`` once; ``python -m tests.campaign`` has hundreds of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from agentenv.sandboxes.docker import DockerProvider
from tests.campaign.campaign import Campaign, run
from tests.campaign.kinds import ALLOWANCE_S, kinds_for
from tests.campaign.table import table


async def campaign(engine: str, root: Path, *, episodes: int) -> None:
    leases = root / "sandboxes"
    leases.mkdir()
    leases.chmod(0o711)
    report = await run(
        Campaign(
            provider=DockerProvider(url=engine, workspace_root=leases),
            root=leases,
            out=root / "run",
            episodes=episodes,
            kinds=kinds_for("docker"),
            allowance_s=ALLOWANCE_S["docker"],
            engine=engine,
        )
    )
    assert report.wrong == [], table(report)
    assert sum(account.episodes for account in report.accounts.values()) == episodes


@pytest.mark.timeout(600)
async def test_episodes_that_do_their_worst(engine: str, root: Path) -> None:
    await campaign(engine, root, episodes=len(kinds_for("docker")))
