"""``agentenv doctor``: what works on this machine, proven by starting it."""

from __future__ import annotations

import asyncio
import platform
from importlib.metadata import PackageNotFoundError, version

import typer

EXTRAS = {"local": "xllamacpp", "parquet": "pyarrow", "tiktoken": "tiktoken"}


def doctor() -> None:
    """Say what works here, and how to get what does not."""
    print(f"python {platform.python_version()} on {platform.platform()}")
    for extra, package in EXTRAS.items():
        print(f"extra {extra:<9} {_installed(package, extra)}")
    broken = asyncio.run(_sandboxes())
    print(f"model smollm2    {_model()}")
    if broken:
        raise typer.Exit(1)


def _installed(package: str, extra: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"missing: pip install 'agentenv[{extra}]'"


async def _sandboxes() -> bool:
    """Start every provider once; say whether none works."""
    from agentenv.sandboxes.providers import PROVIDERS

    works = False
    for name, make in PROVIDERS.items():
        async with make() as provider:
            status = await provider.probe()
        works = works or status.works
        print(f"sandbox {name:<8} {'works' if status.works else 'does not work'}: {status.detail}")
    return not works


def _model() -> str:
    from agentenv.local.models import cached_smollm2

    path = cached_smollm2()
    return str(path) if path else "not fetched yet: make demo, or agentenv collect … --policy smollm2, fetches it"


def register(app: typer.Typer, policy: typer.Typer) -> None:
    """Add the command."""
    del policy
    app.command()(doctor)
