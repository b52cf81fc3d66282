"""``agentenv doctor``: what works on this machine, proven by starting it; and what its sandboxes withstand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentenv.cli.running import run

if TYPE_CHECKING:
    from agentenv.sandboxes.conformance.check import Check
    from agentenv.sandboxes.conformance.report import Tried

EXTRAS = {
    "code": ("pydantic-monty", "pydantic_monty"),
    "docker": ("docker", "docker"),
    "local": ("xllamacpp", "xllamacpp"),
    "mcp": ("mcp", "mcp"),
    "parquet": ("pyarrow", "pyarrow"),
    "tiktoken": ("tiktoken", "tiktoken"),
}
"""Extra to the package that it brings, and the module that is imported of it."""

_WIDTH = 10


def doctor(
    conformance: Annotated[
        list[str] | None,
        typer.Option(
            help="Try the conformance suite on this kind of sandbox, or on MODULE:NAME of a provider of your own, and "
            "exit 1 if anything is not as expected. May be repeated."
        ),
    ] = None,
    check: Annotated[list[str] | None, typer.Option(help="Only this check of the suite. May be repeated.")] = None,
    known: Annotated[
        list[str] | None, typer.Option(help="A check that is known not to hold there. May be repeated.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a page for the docs instead.")] = False,
) -> None:
    """Say what works here, and how to get what does not; exit 1 if no sandbox works that --sandbox auto would take."""
    if conformance:
        _try_conformance(conformance, check or [], known or [], markdown=markdown)
        return
    if check or known or markdown:
        from agentenv.errors import UsageError

        raise UsageError("--check, --known and --markdown belong to --conformance SANDBOX, which is missing")
    import platform

    print(f"python {platform.python_version()} on {platform.platform()}")
    for extra, (package, module) in EXTRAS.items():
        print(f"extra   {extra:<{_WIDTH}} {_installed(package, module)}")
    broken = run(_sandboxes())
    print(f"model   {'smollm2':<{_WIDTH}} {_model()}")
    if broken:
        raise typer.Exit(1)


def _installed(package: str, module: str) -> str:
    """Say which version there is, proven by importing it."""
    from importlib import import_module
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"missing: pip install {package}"
    try:
        import_module(module)
    except ImportError as error:
        return f"{found} is installed and cannot be loaded: {error}"
    return found


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


def _try_conformance(factories: list[str], only: list[str], known: list[str], *, markdown: bool) -> None:
    """Run the suite on each, one after another."""
    import os
    import sys

    from agentenv.cli.terminal import harmless
    from agentenv.sandboxes.conformance.catalogue import CHECKS
    from agentenv.sandboxes.conformance.report import page

    for option, names in (("--check", only), ("--known", known)):
        for name in names:
            _check_name(name, option)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - an entry of sys.path is text; modules of one's own lie there
    checks = [check for name, check in CHECKS.items() if not only or name in only]
    tried = [run(_tried(factory, checks, known, quiet=markdown)) for factory in factories]
    if markdown:
        print(harmless(page(tried)))
    if any(each.unexpected for each in tried):
        raise typer.Exit(1)


def _check_name(name: str, option: str) -> None:
    from agentenv.errors import UnknownNameError
    from agentenv.sandboxes.conformance.catalogue import CHECKS

    if name not in CHECKS:
        raise UnknownNameError.of("check", name, CHECKS, where=f" ({option})")


async def _tried(factory: str, checks: list[Check], known: list[str], *, quiet: bool) -> Tried:
    """Run checks on one provider, and print each result when it is there.

    Raises:
        SandboxFault: No sandbox of that kind starts here.
    """
    import asyncio

    from agentenv.cli.terminal import harmless
    from agentenv.errors import SandboxFault
    from agentenv.sandboxes.conformance.check import Bench
    from agentenv.sandboxes.conformance.factories import make_provider
    from agentenv.sandboxes.conformance.report import HEADING, Tried, line, summary
    from agentenv.sandboxes.conformance.running import run_checks

    async with make_provider(factory) as provider:
        status = await provider.probe()
        if not status.works:
            raise SandboxFault.permanent(f"Sandbox {factory!r} does not work here: {status.detail}")
        identity = await asyncio.to_thread(provider.identity)
        if not quiet:
            print(harmless(f"{factory}: {status.detail}\n{HEADING}"))
        results = []
        async for result in run_checks(checks, Bench(provider=provider, factory=factory), known=known):
            results.append(result)
            if not quiet:
                print(harmless(line(result)), flush=True)
    tried = Tried(identity=identity, results=results)
    if not quiet:
        print(harmless(summary(tried)))
    return tried


def register(app: typer.Typer, policy: typer.Typer) -> None:
    """Add the command."""
    del policy
    app.command()(doctor)
