"""``agentenv doctor``: what works on this machine, proven by starting it."""

from __future__ import annotations

import typer

from agentenv.cli.running import run

EXTRAS = {"local": "xllamacpp", "parquet": "pyarrow", "tiktoken": "tiktoken"}

_WIDTH = 10


def doctor() -> None:
    """Say what works here, and how to get what does not; exit 1 if no sandbox works that --sandbox auto would take."""
    import platform

    print(f"python {platform.python_version()} on {platform.platform()}")
    for extra, package in EXTRAS.items():
        print(f"extra   {extra:<{_WIDTH}} {_installed(package)}")
    broken = run(_sandboxes())
    print(f"model   {'smollm2':<{_WIDTH}} {_model()}")
    if broken:
        raise typer.Exit(1)


def _installed(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"missing: pip install {package}"


async def _sandboxes() -> bool:
    """Start every provider once; say whether none of those works that ``--sandbox auto`` tries."""
    from agentenv.config.sandboxes import AUTO
    from agentenv.sandboxes.providers import PROVIDERS

    works = False
    for name, make in PROVIDERS.items():
        async with make() as provider:
            status = await provider.probe()
        works = works or (status.works and name in AUTO)
        print(f"sandbox {name:<{_WIDTH}} {'works' if status.works else 'does not work'}: {status.detail}")
    return not works


def _model() -> str:
    from agentenv.local.models import SMOLLM2, cache_folder, cached_path

    path = cached_path(SMOLLM2, cache_folder())
    return str(path) if path.is_file() else "not fetched yet: `python -m agentenv.local` fetches it"


def register(app: typer.Typer, policy: typer.Typer) -> None:
    """Add the command."""
    del policy
    app.command()(doctor)
