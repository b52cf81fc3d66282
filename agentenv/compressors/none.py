"""The compressor that never compacts: the baseline of every comparison."""

from __future__ import annotations

from agentenv.core.compressor import CannotCompact, CompressionView
from agentenv.core.deadline import Deadline
from agentenv.core.hashing import sha256_of, source_sha256
from agentenv.records.compaction import Edit


class NoCompression:
    """Leaves the history as it is; a prompt that no longer fits ends the episode."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """``none``."""
        return "none"

    @property
    def sha256(self) -> str:
        """Hash of its source."""
        return sha256_of([self.name, source_sha256(NoCompression.plan)])

    @property
    def trigger_tokens(self) -> None:
        """None: it never wants to compact."""
        return None

    async def plan(self, view: CompressionView, budget_tokens: int, deadline: Deadline) -> tuple[Edit, ...]:
        """Decline.

        Raises:
            CannotCompact: Always.
        """
        raise CannotCompact(
            f"the prompt has {view.tokens:,} tokens, {budget_tokens:,} are allowed, and compressor 'none' removes "
            "nothing"
        )
