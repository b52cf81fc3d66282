"""Clearing of old tool results: each becomes a stub that says what stood there; everything else stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentenv.compressors.counting import require_fit
from agentenv.core.compressor import CannotCompact, CompressionView
from agentenv.core.deadline import Deadline
from agentenv.core.hashing import sha256_of, source_sha256
from agentenv.errors import ConfigError
from agentenv.records.compaction import Edit
from agentenv.records.messages import Message, Role

DEFAULT_KEEP = 3
"""Newest results left alone. Source: the default of Anthropic's ``clear_tool_uses`` and of LangChain's and Inspect's
equivalents."""

CLEARED = ":cleared"
"""Ends the id of every stub, so that a stub is told from a result that looks like one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearToolResults:
    """Replaces all old results at once, so that the prefix cache breaks once per compaction and not once per turn.

    It slows growth and promises no size: what the policy wrote stays. If the rest does not fit, the attempt fails.
    """

    limit: int
    """Rendered prompt size, in tokens, above which it clears."""
    keep: int = DEFAULT_KEEP
    """Newest results left alone. Results that the policy has not answered yet are never cleared, whatever this is."""

    def __post_init__(self) -> None:
        """Refuse settings that mean nothing.

        Raises:
            ConfigError: The limit is below 1, or ``keep`` is negative.
        """
        if self.limit < 1:
            raise ConfigError(f"clear-tool-results needs a limit of at least 1 token, got {self.limit}")
        if self.keep < 0:
            raise ConfigError(f"clear-tool-results cannot keep {self.keep} results; 0 is the least")

    @property
    def name(self) -> str:
        """``clear-tool-results:2048``, and ``,keep=5`` where it is not the default."""
        return f"clear-tool-results:{self.limit}" + ("" if self.keep == DEFAULT_KEEP else f",keep={self.keep}")

    @property
    def sha256(self) -> str:
        """Hash of its source and settings."""
        return sha256_of([self.name, source_sha256(ClearToolResults.plan), source_sha256(require_fit)])

    @property
    def trigger_tokens(self) -> int:
        """The limit."""
        return self.limit

    async def plan(self, view: CompressionView, budget_tokens: int, deadline: Deadline) -> tuple[Edit, ...]:
        """Replace every result that is neither new, nor pinned, nor shorter than its stub. Counts one candidate.

        Raises:
            CannotCompact: There is no such result, or what is left does not fit ``budget_tokens``.
        """
        stubs = {index: _stub(view.messages[index]) for index in self._old(view.messages)}
        if not stubs:
            raise CannotCompact(
                f"the prompt has {view.tokens:,} tokens, {budget_tokens:,} are allowed, and no tool result older than "
                f"the newest {self.keep} is left to clear"
            )
        candidate = [stubs.get(index, message) for index, message in enumerate(view.messages)]
        require_fit(
            view, await view.count(candidate), budget_tokens, f"the messages around {len(stubs)} cleared results"
        )
        return tuple(
            Edit(op="replace", message_id=message.id, message=stubs[index], sources=(message.id,))
            if index in stubs
            else Edit(op="keep", message_id=message.id)
            for index, message in enumerate(view.messages)
        )

    def _old(self, messages: Sequence[Message]) -> list[int]:
        results = [index for index, message in enumerate(messages) if _is_whole_result(message)]
        replies = [index for index, message in enumerate(messages) if message.role is Role.ASSISTANT]
        answered = replies[-1] if replies else 0
        return [
            index
            for index in results[: max(len(results) - self.keep, 0)]
            if index < answered and not messages[index].pinned and _shrinks(messages[index])
        ]


def _is_whole_result(message: Message) -> bool:
    return message.role is Role.TOOL and message.call_id is not None and not message.id.endswith(CLEARED)


def _n_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _stub(message: Message) -> Message:
    text = f"[result of {message.name or 'tool'} cleared: {_n_bytes(message.text)} bytes]"
    return replace(message, id=f"{message.id}{CLEARED}", text=text)


def _shrinks(message: Message) -> bool:
    return _n_bytes(_stub(message).text) < _n_bytes(message.text)
