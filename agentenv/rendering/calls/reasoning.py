"""Reasoning in front of a reply: ``<think>…</think>``.

Source: the chat templates of Qwen 3 and DeepSeek R1.
"""

from __future__ import annotations

from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReply:
    """A reply in two parts."""

    reasoning: str | None
    """None if there is none, or nothing in it."""
    rest: str


def split_reasoning(text: str, *, opened: bool) -> SplitReply:
    """Take leading reasoning off. Reasoning that was never closed leaves nothing else.

    Args:
        text: The reply.
        opened: Whether the generation prompt ends inside reasoning, so that the reply begins there.
    """
    stripped = text.lstrip()
    if stripped.startswith(OPEN):
        stripped = stripped[len(OPEN) :]
    elif not opened:
        return SplitReply(reasoning=None, rest=text)
    reasoning, _, rest = stripped.partition(CLOSE)
    return SplitReply(reasoning=reasoning.strip() or None, rest=rest)
