"""Which slot of the engine plays which call: the one that already holds most of the prompt.

What this module owns: the book of slots. It is used from one event loop.
"""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import dataclass, field

from agentenv.policies.llamacpp_sampling import common_prefix


@dataclass(slots=True, kw_only=True)
class _Slot:
    index: int
    held: array[int] = field(default_factory=lambda: array("i"))
    """Ids the slot has read, as far as we know."""
    used_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to use one slot until it is given back."""

    index: int
    n_held: int
    """Leading ids of the prompt that the slot holds."""


class SlotBook:
    """Hands out slots, first come, first served; among free ones the best match, else the one longest unused."""

    def __init__(self, n_slots: int) -> None:
        self._free = [_Slot(index=index) for index in range(n_slots)]
        self._turn = asyncio.Semaphore(n_slots)
        self._leased: dict[int, _Slot] = {}
        self._clock = 0

    @property
    def n_leased(self) -> int:
        """Slots in use."""
        return len(self._leased)

    async def take(self, prompt: array[int]) -> Lease:
        """Wait for a free slot and take it."""
        await self._turn.acquire()
        matches = [(common_prefix(slot.held, prompt), -slot.used_at, slot) for slot in self._free]
        n_held, _, slot = max(matches, key=lambda match: match[:2])
        self._free.remove(slot)
        self._leased[slot.index] = slot
        return Lease(index=slot.index, n_held=n_held)

    def give_back(self, lease: Lease, held: array[int]) -> None:
        """Return a slot that now holds ``held``."""
        slot = self._leased.pop(lease.index)
        self._clock += 1
        slot.held, slot.used_at = held, self._clock
        self._free.append(slot)
        self._turn.release()
