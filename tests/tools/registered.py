"""Every tool that is found through an entry point: what all of them promise is tested on all of them."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

from agentenv.toolkit import FunctionTool

ROOT = Path(__file__).parents[2]


def tools() -> list[FunctionTool]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        points: dict[str, str] = tomllib.load(file)["project"]["entry-points"]["agentenv.tools"]
    found: list[FunctionTool] = []
    for point in points.values():
        module, attribute = point.split(":")
        value: Any = getattr(import_module(module), attribute)
        found += value if isinstance(value, tuple) else [value]
    return list(dict.fromkeys(found))  # `search` is one of `files`
