"""What no policy can have sampled: ids below 0, log-probs above 0 or without end.

Clients check what their engines answer with messages of their own. This is the check of whatever is recorded: the
shell asks it of every reply, the audit of every stored one.
"""

from __future__ import annotations

import math
import sys
from array import array

from agentenv.records.tokens import Sampled, unpack_ids

TOLERANCE = 1e-6
"""A log-prob may be above 0 by this much: rounding of an engine."""


def impossible(sampled: Sampled) -> str | None:
    """Say what of a reply cannot be, or None. A null log-prob is missing, and may be."""
    ids = unpack_ids(sampled.completion_ids)
    if ids and min(ids) < 0:
        at = next(k for k, token in enumerate(ids) if token < 0)
        return f"token {at} has the id {ids[at]}; ids begin at 0"
    values = array("f", sampled.logprobs)
    if sys.byteorder == "big":
        values.byteswap()
    if not values or (min(values) > -math.inf and max(values) <= TOLERANCE):
        return None  # a null (NaN) in front makes both comparisons false, one behind is passed over by both
    for at, value in enumerate(values):
        if not (math.isnan(value) or -math.inf < value <= TOLERANCE):
            return f"token {at} has the log-prob {value:g}; one must be finite and at most 0, or null"
    return None
