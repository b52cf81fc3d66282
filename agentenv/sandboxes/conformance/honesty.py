"""The check of what a provider says of itself."""

from __future__ import annotations

import asyncio

from agentenv.sandboxes.conformance.check import Bench, Finding, found
from agentenv.sandboxes.conformance.expectations import contradictions


async def weaknesses_said(bench: Bench) -> Finding:
    """What ``identity()["weak"]`` says is known to the table of expectations, and it says all that is always so."""
    identity = await asyncio.to_thread(bench.provider.identity)
    said = identity.get("weak") or "nothing"
    return found(contradictions(identity), f"it says: {said}")
