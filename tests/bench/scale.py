"""How much is run: enough for a figure, or just enough to see that it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes of all sections."""

    rounds: int = 16
    at_once: int = 64
    many_at_once: int = 512
    history_episodes: int = 32
    history_turns: int = 64
    rate_episodes: int = 256
    flood_bytes: int = 1_000_000_000


FULL = Scale()
TINY = Scale(
    rounds=1, at_once=2, many_at_once=4, history_episodes=2, history_turns=4, rate_episodes=2, flood_bytes=8_000_000
)
