"""The rule that a tool must not be called, at all or with certain arguments, decided by the calls that were run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentenv.core.constraint import Effect, Verdict
from agentenv.core.sandbox import Sandbox
from agentenv.errors import ConfigError
from agentenv.records.messages import ToolCall

"""What became of a call that had no effect. One that failed, timed out or was cancelled may have had one."""

_EVIDENCE_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ForbiddenCall:
    """Watches the calls of one tool.

    A call is forbidden if every pattern is found in the argument it is for; with no pattern, every call is. Patterns
    are searched for, so they anchor themselves where they need to. An argument that is no text is matched as the
    JSON it is written in (keys sorted); one that is missing matches nothing.
    """

    tool: str
    pattern: Mapping[str, str] = field(default_factory=dict[str, str])
    """Argument to regular expression, in Python's syntax."""
    _compiled: dict[str, re.Pattern[str]] = field(default_factory=dict[str, re.Pattern[str]], init=False, repr=False)

    def __post_init__(self) -> None:
        """Compile the patterns.

        Raises:
            ConfigError: The tool has no name, or a pattern is no regular expression.
        """
        if not self.tool:
            raise ConfigError("checker forbidden-call: the tool has no name")
        for argument, pattern in self.pattern.items():
            try:
                self._compiled[argument] = re.compile(pattern)
            except re.error as error:
                raise ConfigError(
                    f"checker forbidden-call: the pattern of argument {argument!r} is no regular expression: {error}: "
                    f"{pattern!r:.200}"
                ) from error

    async def observe(self, sandbox: Sandbox | None) -> str:
        """Give the empty text: calls come with the effect, and there is nothing to watch."""
        return ""

    def check(self, before: str, effect: Effect, after: str) -> Verdict:
        """Find a breach if a forbidden call was run; the first one is the evidence, the others are counted."""
        found = [(call, result.status) for call, result in effect.calls if result.status.ran and self._forbids(call)]
        if not found:
            return Verdict(breached=False)
        call, status = found[0]
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        return Verdict(
            breached=True,
            evidence=_shortened(f"call {call.id}: {call.name}(", _text(call.arguments), f") was run: {status}{more}"),
        )

    def _forbids(self, call: ToolCall) -> bool:
        return call.name == self.tool and all(
            argument in call.arguments and pattern.search(_text(call.arguments[argument]))
            for argument, pattern in self._compiled.items()
        )


def _text(value: Any) -> str:
    """Write an argument as it is matched."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _shortened(head: str, body: str, tail: str) -> str:
    """Cut the middle so that the whole is at most 500 characters, and can be written as UTF-8."""
    head, body, tail = (part.encode("utf-8", "backslashreplace").decode() for part in (head, body, tail))
    head = head[:200]
    room = _EVIDENCE_CHARS - len(head) - len(tail)
    return head + (body if len(body) <= room else f"{body[: room - 1]}…") + tail
