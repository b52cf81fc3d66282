"""The sliding window: drops whole turns, oldest first, until the rendered prompt is well below its limit."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from agentenv.compressors.counting import require_fit
from agentenv.core.compressor import CannotCompact, CompressionView
from agentenv.core.deadline import Deadline
from agentenv.core.hashing import sha256_of, source_sha256
from agentenv.core.pairing import owners
from agentenv.errors import ConfigError
from agentenv.records.compaction import Edit
from agentenv.records.messages import Message, Role

DEFAULT_TARGET = 0.5
"""Share of the limit that is filled after a compaction. A target equal to the trigger would compact, and break the
engine's prefix cache, in every turn from then on."""

_LAST_FEW = 3
"""Smallest candidates tried before the chat template's refusal is taken as final. A template that wants a user message
in front refuses the last turn alone, and takes it with the user message before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow:
    """Keeps system and pinned messages, the last turn, and as many of the newest turns as fit.

    A turn is an assistant message with all its tool messages; it goes whole. A user message that is not pinned is a
    unit of its own, dropped by age like a turn, except behind the last turn.
    """

    limit: int
    """Rendered prompt size, in tokens, above which it compacts."""
    target: float = DEFAULT_TARGET
    """In (0, 1]: share of ``limit`` that the prompt may fill afterwards. If the last turn and what is pinned are
    larger than that, the plan keeps nothing else and stands as long as it fits the budget."""

    def __post_init__(self) -> None:
        """Refuse settings that mean nothing.

        Raises:
            ConfigError: The limit is below 1, or the target outside (0, 1].
        """
        if self.limit < 1:
            raise ConfigError(f"window needs a limit of at least 1 token, got {self.limit}")
        if not 0 < self.target <= 1:
            raise ConfigError(f"window needs a target above 0 and at most 1, got {self.target!r}")

    @property
    def name(self) -> str:
        """``window:2048``, and ``,target=0.7`` where it is not the default."""
        return f"window:{self.limit}" + ("" if self.target == DEFAULT_TARGET else f",target={self.target!r}")

    @property
    def sha256(self) -> str:
        """Hash of its source and settings."""
        sources = (SlidingWindow.plan, require_fit, owners)
        return sha256_of([self.name, *(source_sha256(source) for source in sources)])

    @property
    def trigger_tokens(self) -> int:
        """The limit."""
        return self.limit

    async def plan(self, view: CompressionView, budget_tokens: int, deadline: Deadline) -> tuple[Edit, ...]:
        """Drop the fewest of the oldest units so that the prompt fits the target.

        Counts about four candidates: the smallest first, then by interpolation between what is known. A candidate that
        the chat template refuses (one that wants a user message first, say) is passed over for another.

        Raises:
            CannotCompact: Nothing may be dropped, or what has to stay does not fit ``budget_tokens``.
        """
        droppable = _droppable(view.messages)
        if not droppable:
            raise CannotCompact(
                f"the prompt has {view.tokens:,} tokens, {budget_tokens:,} are allowed, and nothing is left to drop "
                "but pinned messages and the last turn"
            )
        search = _Search(view, droppable)
        goal = min(int(self.limit * self.target), budget_tokens, view.tokens - 1)
        most, smallest = await search.most(budget_tokens)
        cut = await search.fewest(goal, most, smallest) if smallest <= goal else most
        gone = search.dropped(cut)
        return tuple(
            Edit(op="drop" if index in gone else "keep", message_id=message.id)
            for index, message in enumerate(view.messages)
        )


def _droppable(messages: Sequence[Message]) -> list[tuple[int, ...]]:
    """Give the units that may go, oldest first, each as its indices into ``messages``."""
    units: dict[int, list[int]] = {}
    last_turn = len(messages) - 1
    for index, (message, owner) in enumerate(zip(messages, owners(messages), strict=True)):
        units.setdefault(index if owner is None else owner, []).append(index)
        if message.role is Role.ASSISTANT:
            last_turn = index
    return [tuple(unit) for unit in units.values() if unit[-1] < last_turn and not _stands(messages, unit)]


def _stands(messages: Sequence[Message], unit: Sequence[int]) -> bool:
    return any(messages[index].pinned or messages[index].role is Role.SYSTEM for index in unit)


class _Search:
    """Looks for the fewest units to drop with few counts.

    The size of a candidate falls as more is dropped. It is guessed from the length of the texts between two counted
    candidates, and every third probe is a bisection, so that texts which tokenise unevenly cost at most a few more.
    """

    def __init__(self, view: CompressionView, droppable: Sequence[tuple[int, ...]]) -> None:
        self._view = view
        self._droppable = droppable
        self._refusal: ConfigError | None = None
        weights = [sum(_weight(view.messages[index]) for index in unit) for unit in droppable]
        self._dropped_weight = [0, *accumulate(weights)]

    def dropped(self, cut: int) -> frozenset[int]:
        """Give the indices of the messages in the ``cut`` oldest units."""
        return frozenset(index for unit in self._droppable[:cut] for index in unit)

    def candidate(self, cut: int) -> list[Message]:
        """Give the window without the ``cut`` oldest units."""
        gone = self.dropped(cut)
        return [message for index, message in enumerate(self._view.messages) if index not in gone]

    async def most(self, budget_tokens: int) -> tuple[int, int]:
        """Find the largest cut that the chat template takes, among the last few, and the size of its candidate.

        Raises:
            CannotCompact: It refuses them all, or the candidate does not fit ``budget_tokens``.
        """
        what = "the last turn and what is pinned"
        for cut in range(len(self._droppable), max(len(self._droppable) - _LAST_FEW, 0), -1):
            size = await self._size(cut)
            if size < math.inf:
                require_fit(self._view, int(size), budget_tokens, what)
                return cut, int(size)
        raise CannotCompact(f"the chat template refuses a window of {what}: {self._refusal}")

    async def fewest(self, goal: int, most: int, smallest: int) -> int:
        """Find the smallest cut above 0 whose candidate fits ``goal``, given that cut ``most`` does."""
        low, high = 0, most
        low_size, high_size = float(self._view.tokens), smallest
        probe = 0
        while high - low > 1:
            probe += 1
            cut = (low + high) // 2 if probe % 3 == 0 else self._guess(low, high, low_size, high_size, goal)
            size = await self._size(cut)
            if size <= goal:
                high, high_size = cut, int(size)
            else:
                low, low_size = cut, size
        return high

    def _guess(self, low: int, high: int, low_size: float, high_size: int, goal: int) -> int:
        if low_size == math.inf:
            return (low + high) // 2
        weights = self._dropped_weight
        share = (low_size - goal) / (low_size - high_size)
        wanted = weights[low] + share * (weights[high] - weights[low])
        return min(max(bisect_left(weights, wanted), low + 1), high - 1)

    async def _size(self, cut: int) -> float:
        """Count a candidate; one that the chat template refuses counts as too large."""
        try:
            return await self._view.count(self.candidate(cut))
        except ConfigError as error:
            self._refusal = error
            return math.inf


def _weight(message: Message) -> int:
    """Guess how much of the prompt a message takes, in characters."""
    calls = sum(len(call.name) + len(str(call.arguments)) + 32 for call in message.calls)
    return len(message.text) + calls + 32
