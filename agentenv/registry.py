"""Names to things: suites, tools and compressors of others through entry points, ours through the package's tables.

The only place that loads entry points. A suite may also be a path to a Python file, or ``module:attribute``; a
compressor a path.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, cast

from agentenv.compressors.table import COMPRESSORS, parse_compressor
from agentenv.core.compressor import Compressor
from agentenv.core.task import Suite
from agentenv.core.tool import Tool
from agentenv.errors import ConfigError, UnknownNameError, UsageError

SUITES_GROUP = "agentenv.tasks"
TOOLS_GROUP = "agentenv.tools"
COMPRESSORS_GROUP = "agentenv.compressors"
"""Of what makes a compressor from the text behind its name, such as a class with one parameter."""

_FILE_AND_SETTINGS = re.compile(r"(.+\.py)(?::(.*))?", re.DOTALL)


def suite_names() -> list[str]:
    """Give the registered suites."""
    return sorted(_points(SUITES_GROUP))


def tool_names() -> list[str]:
    """Give the registered tools and toolsets."""
    return sorted(_points(TOOLS_GROUP))


def load_suite(name: str) -> Suite:
    """Load a suite by registered name, by path of a file that defines ``suite``, or as ``module:attribute``.

    Raises:
        UnknownNameError: Nobody registered the name; says what is near.
        ConfigError: The file or module cannot be imported, or has no suite in it.
    """
    if name.endswith(".py") or "/" in name:
        return _suite_in(_module_from(Path(name)), "suite", name)
    if ":" in name:
        module, attribute = name.split(":", 1)
        return _suite_in(_module(module, name), attribute, name)
    points = _points(SUITES_GROUP)
    if name not in points:
        raise UnknownNameError.of("suite", name, points)
    return _checked(_loaded(points[name], "suite"), name)


def load_tools(name: str) -> tuple[Tool, ...]:
    """Load a registered tool or toolset, or one tool of a toolset by its own name.

    Raises:
        UnknownNameError: Nobody registered the name, and no tool has it.
        ConfigError: The plug-in that registered it cannot be imported.
    """
    points = _points(TOOLS_GROUP)
    if name in points:
        return _tools_of(points[name])
    tools = {tool.spec.name: tool for point in points.values() for tool in _tools_of(point)}
    if name not in tools:
        raise UnknownNameError.of("tool", name, {*points, *tools})
    return (tools[name],)


def _tools_of(point: EntryPoint) -> tuple[Tool, ...]:
    found = _loaded(point, "tool")
    return cast("tuple[Tool, ...]", found) if isinstance(found, tuple) else (cast("Tool", found),)


def compressor_names() -> list[str]:
    """Give the compressors that others registered; ours are in `agentenv.compressors.table`."""
    return sorted(_points(COMPRESSORS_GROUP))


def load_compressor(spec: str) -> Compressor:
    """Make a compressor from ``NAME[:SETTINGS]``, or from ``FILE.py[:SETTINGS]`` of a file that defines ``compressor``.

    What others wrote is called with their settings as text, empty where there are none.

    Raises:
        UnknownNameError: There is no compressor of that name.
        ConfigError: The settings are not what it takes; it cannot be imported or made, or is no compressor.
    """
    file = _FILE_AND_SETTINGS.fullmatch(spec)
    name, settings = (file[1], file[2] or "") if file else (spec.partition(":")[0], spec.partition(":")[2])
    points = _points(COMPRESSORS_GROUP)
    if file:
        make = getattr(_module_from(Path(name), "Compressor"), "compressor", None)
        if make is None:
            raise ConfigError(f"Compressor {spec!r}: {name} defines no 'compressor', which makes one of its settings")
    elif name in points and name not in COMPRESSORS:
        make = _loaded(points[name], "compressor")
    elif name in COMPRESSORS:
        return parse_compressor(spec)
    else:
        raise UnknownNameError.of("compressor", name, {*COMPRESSORS, *points})
    return _made(make, settings, spec)


def _made(make: Callable[[str], Any], settings: str, spec: str) -> Compressor:
    try:
        made = make(settings)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"Compressor {spec!r} cannot be made: {type(error).__name__}: {error}") from error
    missing = [name for name in ("name", "sha256", "trigger_tokens", "plan") if not hasattr(made, name)]
    if missing:
        raise ConfigError(f"{spec!r} makes no compressor: {type(made).__name__} has no {', '.join(missing)}")
    return cast("Compressor", made)


def _points(group: str) -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def _loaded(point: EntryPoint, kind: str) -> Any:
    try:
        with _no_silent_end():
            return point.load()
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{kind.capitalize()} {point.name!r}: its plug-in {point.value} cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error


def _module(name: str, spec: str) -> ModuleType:
    try:
        with _no_silent_end():
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"Suite {spec!r}: module {name!r} cannot be imported: {type(error).__name__}: {error}{_file_hint(name)}"
        ) from error


def _file_hint(name: str) -> str:
    path = Path(f"{name}.py")
    return f". For a file write {path}" if path.is_file() else ""


def _module_from(path: Path, kind: str = "Suite") -> ModuleType:
    if not path.is_file():
        raise ConfigError(
            f"{kind} {str(path)!r}: there is no such file; give a registered name or a path to a .py file"
        )
    name = f"agentenv_{kind.lower()}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise ConfigError(f"{kind} {str(path)!r} must be a Python file, whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look their module up
    try:
        with _no_silent_end():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(f"{kind} {str(path)!r} raised {type(error).__name__} when it was loaded: {error}") from error
    return module


@contextmanager
def _no_silent_end() -> Generator[None]:
    """Make ``os._exit`` raise ``SystemExit`` here, or a file could end the command without a word.

    Children of this process, which are to end by it, still do.
    """
    ending, owner = os._exit, os.getpid()  # pyright: ignore[reportPrivateUsage]  its public name

    def told(status: int) -> NoReturn:
        if os.getpid() != owner:
            ending(status)
        raise SystemExit(f"it called os._exit({status})")

    os._exit = told
    try:
        yield
    finally:
        os._exit = ending


def _suite_in(module: ModuleType, attribute: str, spec: str) -> Suite:
    if not hasattr(module, attribute):
        raise ConfigError(f"Suite {spec!r}: {module.__name__} defines no {attribute!r}")
    return _checked(getattr(module, attribute), spec)


def _checked(found: Any, spec: str) -> Suite:
    missing = [
        name for name in ("name", "size", "levels", "sha256", "task", "demonstrations") if not hasattr(found, name)
    ]
    if missing:
        raise ConfigError(f"{spec!r} is no suite: {type(found).__name__} has no {', '.join(missing)}")
    return cast("Suite", found)
