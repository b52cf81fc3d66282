"""JSON Schema of a function's parameters, and the type that converts arguments to them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import msgspec

from agentenv.core.deadline import Deadline
from agentenv.core.tool import ToolContext
from agentenv.errors import UsageError
from agentenv.toolkit.references import NotInlined, inlined

_LEFT_OUT = frozenset({"title", "discriminator"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What a function takes."""

    model: type[msgspec.Struct]
    """Converts a mapping of arguments; unknown names are errors."""
    types: Mapping[str, Any]
    """Shown parameters in order: name to annotation."""
    schema: dict[str, Any]
    """JSON Schema of an object, without references."""
    contexts: tuple[str, ...]
    """Parameters that get the `ToolContext`."""
    deadlines: tuple[str, ...]
    """Parameters that get the `Deadline`."""


def parameters_of(function: Callable[..., Any], documentation: Mapping[str, str]) -> Parameters:
    """Read a signature.

    Args:
        function: Plain function, every parameter annotated.
        documentation: Parameter name to the text shown to the policy.

    Raises:
        UsageError: A parameter that cannot be part of a JSON object, or documentation of one that does not exist.
    """
    where = f"tool {function.__qualname__!r}"
    hints = _hints(function, where)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    injected: dict[type, list[str]] = {ToolContext: [], Deadline: []}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(f"{where}: {parameter} has no place in a JSON object; name each parameter")
        if name not in hints:
            raise UsageError(f"{where}: parameter {name!r} has no annotation; add one, such as {name}: str")
        kind = hints[name]
        if kind is ToolContext or kind is Deadline:
            injected[kind].append(name)
            continue
        _check_type(name, kind, where)
        text = documentation.get(name)
        kind = Annotated[kind, msgspec.Meta(description=text)] if text else kind
        fields.append((name, kind) if parameter.default is parameter.empty else (name, kind, parameter.default))
    _check_documented(documentation, hints.keys() - {"return"}, where)
    model, schema = _model(fields, where)
    return Parameters(
        model=model,
        types={field[0]: field[1] for field in fields},
        schema=schema,
        contexts=tuple(injected[ToolContext]),
        deadlines=tuple(injected[Deadline]),
    )


def _hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise UsageError(
            f"{where}: an annotation cannot be resolved ({error}); import its name at module level, "
            "not under TYPE_CHECKING"
        ) from error


def _check_type(name: str, kind: Any, where: str) -> None:
    """Refuse a type that JSON has no form for.

    Raises:
        UsageError: Names the parameter and its type.
    """
    try:
        msgspec.json.schema(kind)
    except (TypeError, ValueError) as error:
        written = kind.__name__ if isinstance(kind, type) else str(kind)
        raise UsageError(f"{where}: parameter {name!r}: type {written} has no JSON form") from error
    except RecursionError:
        return  # what refers to itself is refused where references are resolved


def _check_documented(documentation: Mapping[str, str], names: AbstractSet[str], where: str) -> None:
    if stray := sorted(set(documentation) - names):
        raise UsageError(
            f"{where}: the docstring describes {', '.join(stray)}, which it does not take; "
            f"its parameters are: {', '.join(sorted(names)) or 'none'}"
        )


def _model(fields: list[Any], where: str) -> tuple[type[msgspec.Struct], dict[str, Any]]:
    """Make the converting type and its schema.

    Raises:
        UsageError: An annotation that JSON cannot carry, a recursive one, or a mutable default.
    """
    try:
        model = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)
        raw = msgspec.json.schema(model)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: unsupported annotation or default: {error}") from error
    try:
        schema = inlined(raw, leave_out=_LEFT_OUT)
    except NotInlined as error:
        raise UsageError(f"{where}: an annotation refers to itself; tool schemas cannot recurse") from error
    return model, schema
