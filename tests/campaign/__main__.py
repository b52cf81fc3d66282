"""``python -m tests.campaign``: hundreds of episodes that do their worst to their sandboxes, and what came of it."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agentenv.sandboxes.pool import PooledProvider

from tests.campaign.campaign import Campaign, Report, run
from tests.campaign.kinds import ALLOWANCE_S, PROVIDERS, kinds_for
from tests.campaign.table import table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit code is 1 if anything is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--sandbox", choices=PROVIDERS, default="bwrap")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warm", type=int, default=0, help="sandboxes that stand ready before they are asked for")
    parser.add_argument("--only", choices=kinds_for("bwrap"), action="append", help="a kind of trouble; again for more")
    given = parser.parse_args(arguments)
    report = asyncio.run(_campaign(given))
    print(table(report))
    for what in report.wrong:
        print(what, file=sys.stderr)
    return 1 if report.wrong else 0


async def _campaign(given: argparse.Namespace) -> Report:
    with tempfile.TemporaryDirectory(prefix="agentenv-campaign-") as name:
        folder = Path(name)
        root = folder / "sandboxes"
        root.mkdir()
        for reachable in (folder, root):
            reachable.chmod(0o711)  # for the sandboxes' user
        provider = PROVIDERS[given.sandbox](root)
        return await run(
            Campaign(
                provider=PooledProvider(provider, warm=given.warm) if given.warm else provider,
                root=root,
                out=folder / "run",
                episodes=given.episodes,
                concurrency=given.concurrency,
                seed=given.seed,
                kinds=given.only or kinds_for(given.sandbox),
                allowance_s=ALLOWANCE_S[given.sandbox],
                engine=os.environ.get("DOCKER_HOST") if given.sandbox == "docker" else None,
            )
        )


if __name__ == "__main__":
    sys.exit(main())
