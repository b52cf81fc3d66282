"""Hashes of what makes a tool, for the manifest (law 13)."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, ModuleType

import msgspec

from agentenv.core.tool import ToolFunction
from agentenv.errors import UsageError
from agentenv.records.messages import ToolSpec


def tool_sha256(spec: ToolSpec, function: ToolFunction, sources: Iterable[ModuleType]) -> str:
    """Hash a spec, the file that defines the function, and further modules.

    The whole file is taken because what a tool does lies in what its function calls, too. A function without a file
    (typed at a prompt) is hashed by its byte code, which holds for one version of Python.
    """
    digest = hashlib.sha256(msgspec.json.encode(spec, order="sorted"))
    for part in (_definition(function), *map(_module, sources)):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def _definition(function: ToolFunction) -> bytes:
    code: CodeType = inspect.unwrap(function).__code__
    try:
        return Path(code.co_filename).read_bytes()
    except OSError:
        return _code(code)


def _code(code: CodeType) -> bytes:
    """Give byte code with its constants, nested functions included."""
    constants = [_code(item) if isinstance(item, CodeType) else repr(item).encode() for item in code.co_consts]
    return b"\0".join([code.co_code, *map(str.encode, code.co_names), *constants])


def _module(module: ModuleType) -> bytes:
    file = getattr(module, "__file__", None)
    if file is None:
        raise UsageError(f"module {module.__name__!r} has no source file to hash")
    return Path(file).read_bytes()
