"""Counting candidate windows, where the chat template may refuse one."""

from __future__ import annotations

from collections.abc import Sequence

from agentenv.core.compressor import CannotCompact, CompressionView
from agentenv.errors import ConfigError
from agentenv.records.messages import Message


def fitting_size(view: CompressionView, candidate: Sequence[Message], budget_tokens: int, what: str) -> int:
    """Count a candidate that has to fit, and to be smaller than the window (law 7).

    Args:
        view: Whose ``count`` is used, once.
        candidate: The window as it would be.
        budget_tokens: Most tokens it may have.
        what: What is left in it, for the message: ``the last turn and what is pinned``.

    Raises:
        CannotCompact: It is too large, no smaller than before, or refused by the chat template.
    """
    try:
        size = view.count(candidate)
    except ConfigError as error:
        raise CannotCompact(f"the chat template refuses a window of {what}: {error}") from error
    if size > budget_tokens:
        raise CannotCompact(f"{what} alone take {size:,} tokens, {budget_tokens:,} are allowed")
    if size >= view.tokens:
        raise CannotCompact(f"{what} alone take {size:,} tokens, no fewer than the {view.tokens:,} of the whole window")
    return size
