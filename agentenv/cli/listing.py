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

    registered = {name: load_tools(name) for name in tool_names()}
    rows = {tool.spec.name: tool.spec.description.split("\n")[0] for tools in registered.values() for tool in tools}
    sets = {
        name: f"the same as {', '.join(tool.spec.name for tool in tools)}"
        for name, tools in registered.items()
        if name not in rows
    }
    return sorted((rows | sets).items())


def _compressors() -> list[tuple[str, str]]:
    from agentenv.compressors.table import COMPRESSORS
    from agentenv.registry import compressor_names

    ours = [(name, f"{kind.purpose}. Write {kind.form}") for name, kind in COMPRESSORS.items()]
    return ours + [(name, f"of another package. Write {name}[:SETTINGS]") for name in compressor_names()]


def _sandboxes() -> list[tuple[str, str]]:
    from agentenv.sandboxes.providers import PROVIDERS

    return [(name, (type(make()).__doc__ or "").split("\n")[0]) for name, make in PROVIDERS.items()]


def _policies() -> list[tuple[str, str]]:
    from agentenv.config.policies import POLICIES

    return [(name, purpose) for name, (purpose, _) in POLICIES.items()]


def _exporters() -> list[tuple[str, str]]:
    from agentenv.exporters.table import EXPORTERS

    return [(name, (make.__doc__ or "").split("\n")[0]) for name, make in EXPORTERS.items()]


def _columns() -> list[tuple[str, str]]:
    from agentenv.exporters.schema import COLUMNS

    return [(name, f"{kind}  {meaning}") for name, kind, meaning in COLUMNS]


KINDS: dict[str, tuple[str, Callable[[], list[tuple[str, str]]]]] = {
    "columns": ("of an export: name, type, and what it means", _columns),
    "compressors": ("name, what it does, and how --compressor takes it", _compressors),
    "exporters": ("name for --to, and what it writes", _exporters),
    "policies": ("name for --policy, and what it is", _policies),
    "sandboxes": ("name for --sandbox, and what it is; see also `agentenv doctor`", _sandboxes),
    "suites": ("name, how many variants each level has, and the levels", _suites),
    "tools": ("name, and the first line of what a policy is told of it", _tools),
}
"""Kind to what stands on its lines, and what gives them."""


def _help() -> str:
    width = max(map(len, KINDS))
    lines = [f"{kind:<{width}}  {says}" for kind, (says, _) in KINDS.items()]
    return "\n".join(("List what there is of a kind, a line for each.", "", "\b", *lines))  # \b keeps the lines apart


def list_things(kind: Annotated[str, typer.Argument(help=", ".join(KINDS))]) -> None:
    """List what there is of a kind, a line for each: its name, and what stands behind it."""
    from agentenv.cli.terminal import harmless
    from agentenv.errors import UnknownNameError

    if kind not in KINDS:
        raise UnknownNameError.of("kind of thing", kind, KINDS)
    rows = KINDS[kind][1]()
    width = max((len(name) for name, _ in rows), default=0)
    for name, purpose in rows:
        print(harmless(f"{name:<{width}}  {purpose}"))


def register(app: typer.Typer, policy: typer.Typer) -> None:
    """Add the command."""
    del policy
    app.command("list", help=_help())(list_things)
