"""When the history has to be compacted, and how far the compaction under way has come (law 7). Pure.

Whether a plan may be applied is `engine.compaction`'s to say; what the window then is, `engine.window`'s.
"""

from __future__ import annotations

from agentenv.engine.effects import Compress
from agentenv.engine.window import Window
from agentenv.errors import LawBreach
from agentenv.records.budgets import Budget
from agentenv.records.facts import TurnSampled


class Compacting:
    """The compactions of one episode.

    Between two replies each trigger is tried once at most: a compaction that did not help is not asked for again.
    A compressor may have the policy write one summary for it; the attempt then goes on with the text, or with the
    reason why there can be none.
    """

    __slots__ = (
        "_denied",
        "_n_ended",
        "_prompt_tokens",
        "_reserve_tokens",
        "_summary",
        "_summary_turns",
        "_tried",
        "_trigger",
        "_trigger_tokens",
    )

    def __init__(self, *, trigger_tokens: int | None, reserve_tokens: int) -> None:
        """Nothing is under way.

        Args:
            trigger_tokens: Rendered size above which the compressor wants to compact; None: only where room is short.
            reserve_tokens: Room for a reply that a prompt has to leave in the context.
        """
        self._trigger_tokens = trigger_tokens
        self._reserve_tokens = reserve_tokens
        self._tried: set[str] = set()
        self._trigger = ""
        self._prompt_tokens = 0
        self._n_ended = 0
        self._summary: str | None = None
        self._denied: str | None = None
        self._summary_turns: tuple[int, ...] = ()

    def begin_if_due(self, prompt_tokens: int, room: float) -> bool:
        """Begin a compaction if one is due before the next reply.

        Args:
            prompt_tokens: Rendered size of the window.
            room: Context tokens that it leaves; ``inf`` where nothing limits them.

        Returns:
            Whether one has begun.
        """
        if room < self._reserve_tokens and "overflow" not in self._tried:
            self._trigger = "overflow"
        elif self._trigger_tokens is not None and prompt_tokens > self._trigger_tokens and not self._tried:
            self._trigger = "budget"
        else:
            return False
        self._prompt_tokens = prompt_tokens
        self._tried.add(self._trigger)
        return True

    def effect(self, window: Window, context: Budget | None) -> Compress:
        """Say what has to be done.

        Args:
            window: To be compacted.
            context: The tightest budget of context tokens; None if there is none.
        """
        room = None if context is None else int(context.limit) - self._reserve_tokens
        allowed = [n for n in (self._trigger_tokens, room) if n is not None]
        return Compress(
            id=f"k{self._n_ended}",
            window=window.messages,
            tokens=self._prompt_tokens,
            budget_tokens=max(min(allowed), 0),
            trigger=self._trigger,
            taken=window.taken,
            denied=self._denied,
            summary=self._summary,
            summary_turns=self._summary_turns,
        )

    def ask_summary(self) -> None:
        """Take note that the compressor asks for a summary.

        Raises:
            LawBreach: It had one, or was denied one.
        """
        if self._summary is not None or self._denied is not None:
            raise LawBreach("a compaction asks for one summary at most")

    def deny_summary(self, short: Budget | None) -> None:
        """Have the attempt recorded as failed: it is never silently skipped.

        Args:
            short: The budget that leaves no token for a summary; None: no token was asked for.
        """
        self._denied = f"no summary can be sampled: {short.name if short else 'what was asked for'} leaves no token"

    def take_summary(self, fact: TurnSampled) -> None:
        """Take the summary that the policy wrote."""
        self._summary = fact.parsed.text
        self._summary_turns += (fact.turn,)

    def end(self) -> None:
        """End the compaction under way, applied or not."""
        self._n_ended += 1
        self._summary, self._denied, self._summary_turns = None, None, ()

    def replied(self) -> None:
        """Take note of a reply: every trigger may be tried again."""
        self._tried.clear()
