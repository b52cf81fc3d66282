"""JSON Schemas without references: each definition is put where it is referred to.

Few chat templates follow references, and a model that reads ``$ref`` has to look elsewhere for what to write.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

_LITERAL = frozenset({"default", "enum", "const", "examples"})
"""Keywords whose values are data, not schemas."""
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords whose values are schemas by name."""
_DEFINITIONS = frozenset({"$defs", "definitions"})
_BESIDE = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"})
"""Keywords that only say something of what they stand beside."""
_REBASING = frozenset({"$id", "$dynamicRef", "$recursiveRef"})
_MOST_NODES = 20_000
_MOST_LEVELS = 64


class NotInlined(Exception):
    """A schema that cannot do without its references; the text says why."""


def inlined(schema: dict[str, Any], *, leave_out: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Give a schema that says the same without ``$ref`` and definitions.

    Args:
        schema: Any JSON object.
        leave_out: Further keywords that are not wanted.

    Raises:
        NotInlined: It refers to itself, to what is not in it, or would become too large.
    """
    return _Inlining(schema, _DEFINITIONS | leave_out).of(schema, 0)


class _Inlining:
    def __init__(self, root: dict[str, Any], leave_out: frozenset[str]) -> None:
        self._root = root
        self._leave_out = leave_out
        self._nodes = 0

    def of(self, node: Any, level: int) -> Any:
        self._nodes += 1
        if level > _MOST_LEVELS or self._nodes > _MOST_NODES:
            raise NotInlined("it refers to itself, or is far larger than it is written")
        if isinstance(node, list):
            return [self.of(item, level + 1) for item in node]
        if not isinstance(node, dict):
            return node
        if not _REBASING.isdisjoint(node):
            raise NotInlined("its references depend on where they stand")
        if "$ref" in node:
            return self._with_target(node, level)
        return {key: self._value(key, value, level + 1) for key, value in node.items() if key not in self._leave_out}

    def _value(self, key: str, value: Any, level: int) -> Any:
        if key in _LITERAL:
            return value
        if key in _NAMED and isinstance(value, dict):
            return {name: self.of(item, level + 1) for name, item in value.items()}
        return self.of(value, level)

    def _with_target(self, node: dict[str, Any], level: int) -> Any:
        """Put what a reference leads to in its place; what stands beside it holds as well."""
        rest = {key: value for key, value in node.items() if key != "$ref"}
        target = self.of(self._found(node["$ref"]), level + 1)
        beside = self.of(rest, level + 1)
        if not beside:
            return target
        if isinstance(target, dict) and _BESIDE.issuperset(beside):
            return {**target, **beside}
        return {**beside, "allOf": [*beside.get("allOf", ()), target]}

    def _found(self, reference: Any) -> Any:
        """Follow a JSON pointer. Source: RFC 6901."""
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise NotInlined(f"it refers to {reference!r:.80}")
        at: Any = self._root
        for part in unquote(reference[2:]).split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(at, dict) or key not in at:
                raise NotInlined(f"it refers to {reference!r:.80}, which is not in it")
            at = at[key]
        return at
