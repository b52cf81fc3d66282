"""What every compressor asks of a candidate it has counted."""

from __future__ import annotations

from agentenv.core.compressor import CannotCompact, CompressionView


def require_fit(view: CompressionView, size: int, budget_tokens: int, what: str) -> None:
    """Refuse a candidate that law 7 would not let stand.

    Args:
        view: Of the window as it is.
        size: Tokens of the candidate.
        budget_tokens: Most tokens it may have.
        what: What is left in it, for the message: ``the last turn and what is pinned``.

    Raises:
        CannotCompact: It does not fit, or is no smaller than the window.
    """
    if size > budget_tokens:
        raise CannotCompact(f"{what} alone take {size:,} tokens, {budget_tokens:,} are allowed")
    if size >= view.tokens:
        raise CannotCompact(f"{what} alone take {size:,} tokens, no fewer than the {view.tokens:,} of the whole window")
