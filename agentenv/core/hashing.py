"""Content hashes of tasks and of source code: equal content gives equal hashes, on every machine and Python version.

Values are written as canonical JSON (keys sorted, ASCII only) and hashed with SHA-256. Nothing that depends on the
process takes part: no ``hash()``, no addresses, no byte code, no paths. A callable stands for itself by its qualified
name, the text of the file that defines it, and the data it carries (fields, closure, defaults).
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import linecache
import math
import types
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, cast

from agentenv.core.task import Task
from agentenv.errors import ConfigError

_AS_THEY_ARE = frozenset({type(None), bool, int, str})
_ORDER = json.JSONEncoder(sort_keys=True).encode


def sha256_of(value: object) -> str:
    """Hash a value by its content.

    Args:
        value: None, booleans, numbers, text, bytes, enumerations, dataclasses, mappings with text keys, sequences,
            sets, callables whose source can be read; nested at will.

    Returns:
        64 hexadecimal digits.

    Raises:
        ConfigError: Something in it has no content that could be hashed; the message names its type.
    """
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def content_hash(task: Task) -> str:
    """Hash everything that decides a task: what is shown, what may be done, what is graded and how.

    Scripts do not take part: they play the task and do not change it.

    Raises:
        ConfigError: The grader's source cannot be read, or it carries something that cannot be hashed.
    """
    return sha256_of(
        {
            "id": task.id,
            "messages": task.messages,
            "tools": [tool.sha256 for tool in task.tools],  # of the spec and the source
            "files": task.files,
            "needs_sandbox": task.needs_sandbox,
            "budgets": task.budgets,
            "constraints": task.constraints,
            "grader": task.grader,
            "grade_timeout_s": task.grade_timeout_s,
            "grade_on": task.grade_on,
            "on_text": task.on_text,
            **({"network": task.network} if task.network else {}),  # most have none, and keep the hash they had
        }
    )


def source_sha256(function: Callable[..., Any]) -> str:
    """Hash the text of the file that defines a function, line endings normalised.

    Raises:
        ConfigError: There is no such text (typed into an interpreter, or compiled from a string).
    """
    code = inspect.unwrap(function).__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise ConfigError(
            f"the source of {function.__qualname__!r} cannot be read from {code.co_filename!r}, so it has no content "
            "hash; define it in a file"
        )
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def files_sha256(paths: Iterable[Path]) -> str:
    """Hash text files by name and content, in order of their names, line endings normalised.

    Raises:
        OSError: One of them cannot be read.
    """
    return sha256_of({path.name: path.read_text(encoding="utf-8") for path in paths})


def _plain(value: object) -> object:
    """Reduce a value to what JSON can write, without losing what tells two contents apart."""
    if type(value) in _AS_THEY_ARE:  # most of what is hashed
        return value
    match value:
        case Enum():
            return _plain(value.value)
        case int() | str():
            return value
        case float() if math.isfinite(value):
            return int(value) if value.is_integer() else value
        case bytes() | bytearray() | memoryview():
            return {"sha256": hashlib.sha256(value).hexdigest()}
        case PurePath():
            return value.as_posix()
        case dict() | list() | tuple() | Mapping() | AbstractSet():
            return _plain_container(value)
        case _:
            return _plain_object(value)


def _plain_container(value: object) -> object:
    if isinstance(value, (dict, Mapping)):
        return {_text_key(key): _plain(member) for key, member in cast("Mapping[object, object]", value).items()}
    members = [_plain(member) for member in cast("Iterable[object]", value)]
    if isinstance(value, AbstractSet):
        return {"set": sorted(members, key=_ORDER)}
    return members


def _text_key(key: object) -> str:
    if isinstance(key, str):
        return str(key)
    raise ConfigError(f"a mapping that is hashed must have text keys, got {type(key).__name__}: {key!r:.80}")


def _plain_object(value: object) -> object:
    """Reduce dataclasses and callables; refuse the rest, whose content is unknown."""
    if isinstance(value, types.FunctionType):
        return {"function": value.__qualname__, "source": source_sha256(value), **_carried(value)}
    if isinstance(value, types.MethodType):
        return {"method": _plain(value.__func__), "of": _plain(value.__self__)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        plain: dict[str, object] = {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
        if callable(value):
            plain["source"] = source_sha256(cast("types.FunctionType", kind.__call__))
        return {kind.__qualname__: plain}
    raise ConfigError(
        f"a {type(value).__qualname__} has no content hash: {value!r:.120}; use finite numbers, text, bytes, a "
        "dataclass, or a function defined in a file"
    )


def _carried(function: types.FunctionType) -> dict[str, object]:
    """Reduce what a function brings along beside its source: closure and defaults."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {
        "closure": {name: _plain(cell.cell_contents) for name, cell in cells if cell.cell_contents is not function},
        "defaults": _plain(function.__defaults__ or ()),
        "keyword_defaults": _plain(function.__kwdefaults__ or {}),
    }
