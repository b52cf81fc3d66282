"""Seeds of calls: every call of a run gets its own, and a call that is made again gets the same."""

from __future__ import annotations

TURNS_PER_EPISODE = 1024
"""Turns of one episode that are sure to have distinct seeds."""

EPISODES_PER_RUN = (1 << 30) // TURNS_PER_EPISODE
"""Consecutive episode seeds that are sure not to share a call seed."""

_SCRAMBLE = 0x9E3779B1  # odd, so multiplication is a bijection modulo 2**30 and distinct inputs stay distinct


def call_seed(episode_seed: int, turn: int) -> int:
    """Give the seed of one call, in [0, 2**30): the upper half of 31 bits is for calls that go on after an abort.

    Distinct for all turns below `TURNS_PER_EPISODE` of any `EPISODES_PER_RUN` consecutive episode seeds.

    >>> call_seed(0, 0), call_seed(0, 1) != call_seed(1, 0)
    (0, True)
    """
    return ((episode_seed * TURNS_PER_EPISODE + turn) * _SCRAMBLE) & 0x3FFFFFFF
