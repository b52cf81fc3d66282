"""``agentenv list``: what there is, by kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer


def _suites() -> list[tuple[str, str]]:
    from agentenv.registry import load_suite, suite_names

    loaded = [(name, load_suite(name)) for name in suite_names()]
    return [(name, f"{suite.size} variants, levels {', '.join(map(str, suite.levels))}") for name, suite in loaded]


def _tools() -> list[tuple[str, str]]:
    from agentenv.registry import load_tools, tool_names

    return [
        (tool.spec.name, tool.spec.description.split("\n")[0]) for name in tool_names() for tool in load_tools(name)
    ]


def _compressors() -> list[tuple[str, str]]:
    from agentenv.compressors.table import COMPRESSORS

    return [(name, f"{kind.purpose}. Write {kind.form}") for name, kind in COMPRESSORS.items()]


def _sandboxes() -> list[tuple[str, str]]:
    from agentenv.sandboxes.providers import PROVIDERS

    return [(name, "agentenv doctor proves whether it works here") for name in PROVIDERS]


def _policies() -> list[tuple[str, str]]:
    from agentenv.config.policies import POLICIES

    return [(name, purpose) for name, (purpose, _) in POLICIES.items()]


def _exporters() -> list[tuple[str, str]]:
    from agentenv.exporters.table import EXPORTERS

    return [(name, (make.__doc__ or "").split("\n")[0]) for name, make in EXPORTERS.items()]


def _columns() -> list[tuple[str, str]]:
    from agentenv.exporters.schema import COLUMNS

    return [(name, f"{kind}  {meaning}") for name, kind, meaning in COLUMNS]


KINDS: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "columns": _columns,
    "compressors": _compressors,
    "exporters": _exporters,
    "policies": _policies,
    "sandboxes": _sandboxes,
    "suites": _suites,
    "tools": _tools,
}


def list_things(kind: Annotated[str, typer.Argument(help=", ".join(KINDS))]) -> None:
    """List suites, tools, compressors, sandboxes, policies, exporters, or the columns of what they export."""
    from agentenv.cli.terminal import harmless
    from agentenv.errors import UnknownNameError

    if kind not in KINDS:
        raise UnknownNameError.of("kind of thing", kind, KINDS)
    rows = KINDS[kind]()
    width = max((len(name) for name, _ in rows), default=0)
    for name, purpose in rows:
        print(harmless(f"{name:<{width}}  {purpose}"))


def register(app: typer.Typer, policy: typer.Typer) -> None:
    """Add the command."""
    del policy
    app.command("list")(list_things)
