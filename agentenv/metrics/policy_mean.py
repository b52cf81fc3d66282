"""The mean over the policy's tokens: a loss divides by their number, never by the length of the sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentenv.errors import UsageError


def policy_mean(values: Sequence[float], mask: Sequence[int]) -> float:
    """Average ``values`` where ``mask`` is 1.

    Args:
        values: (T,) one number for each token.
        mask: (T,) 1 where the policy sampled the token, else 0.

    Raises:
        UsageError: The lengths differ, the mask holds something else than 0 and 1, or it has no 1.

    >>> policy_mean([99.0, 2.0, 4.0], [0, 1, 1])
    3.0
    """
    if len(values) != len(mask):
        raise UsageError(f"{len(values)} values but {len(mask)} mask entries: they must be of one sequence.")
    strange = next((index for index, entry in enumerate(mask) if entry not in (0, 1)), None)
    if strange is not None:
        raise UsageError(f"A mask holds 0 and 1; entry {strange} is {mask[strange]!r}.")
    chosen = [value for value, entry in zip(values, mask, strict=True) if entry]
    if not chosen:
        raise UsageError(f"The policy sampled none of these {len(mask)} tokens: there is no mean over nothing.")
    return math.fsum(chosen) / len(chosen)
