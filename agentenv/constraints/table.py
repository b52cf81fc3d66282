"""The checkers by name, and how one is made from what a constraint says about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

from agentenv.constraints.file_unchanged import FileUnchanged
from agentenv.constraints.forbidden_call import ForbiddenCall
from agentenv.core.constraint import Checker
from agentenv.errors import ConfigError, UnknownNameError
from agentenv.records.constraints import CheckerSpec

CheckerFactory = Callable[[Mapping[str, Any]], Checker]
"""Makes the checker of one constraint in one episode from its arguments.

Raises ``ConfigError`` for arguments that it does not take.
"""


def make_checker(spec: CheckerSpec) -> Checker:
    """Make the checker of one constraint for one episode.

    Raises:
        UnknownNameError: Nobody registered a checker of that name.
        ConfigError: Its arguments are wrong; says which are expected.
    """
    factory = CHECKERS.get(spec.name)
    if factory is None:
        raise UnknownNameError.of("checker", spec.name, CHECKERS)
    return factory(spec.arguments)


def _file_unchanged(arguments: Mapping[str, Any]) -> Checker:
    form = '{"path": "data/original.csv"}'
    _only("file-unchanged", arguments, ("path",), form)
    return FileUnchanged(path=_word("file-unchanged", arguments, "path", form))


def _forbidden_call(arguments: Mapping[str, Any]) -> Checker:
    form = '{"tool": "shell"}, with "pattern": {"command": "rm .*"} for some calls only'
    _only("forbidden-call", arguments, ("tool", "pattern"), form)
    pattern: object = arguments.get("pattern", {})
    if not isinstance(pattern, Mapping) or not all(
        isinstance(part, str) for pair in cast("Mapping[object, object]", pattern).items() for part in pair
    ):
        raise ConfigError(
            f"checker forbidden-call: pattern maps arguments to regular expressions, got {pattern!r:.200}; "
            f"expected {form}"
        )
    return ForbiddenCall(
        tool=_word("forbidden-call", arguments, "tool", form), pattern=dict(cast("Mapping[str, str]", pattern))
    )


def _only(name: str, arguments: Mapping[str, Any], known: tuple[str, ...], form: str) -> None:
    unknown = sorted(repr(key) for key in arguments if key not in known)
    if unknown:
        raise ConfigError(f"checker {name}: no argument is called {', '.join(unknown)}; expected {form}")


def _word(name: str, arguments: Mapping[str, Any], key: str, form: str) -> str:
    value = arguments.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"checker {name}: {key} is a text that is not empty, got {value!r:.200}; expected {form}")
    return value


CHECKERS: Mapping[str, CheckerFactory] = MappingProxyType(
    {"file-unchanged": _file_unchanged, "forbidden-call": _forbidden_call}
)
