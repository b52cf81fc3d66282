"""Exceptions to fault reports: whose fault it was is decided by the class raised at the boundary, never by a name."""

from __future__ import annotations

from agentenv.errors import Fault
from agentenv.records.axes import FaultDomain
from agentenv.records.episode import FaultReport

_LONGEST = 2_000


def report_of(error: Exception) -> FaultReport:
    """Describe an exception for the record; what is no `Fault` is the harness's own."""
    domain = error.domain if isinstance(error, Fault) else FaultDomain.HARNESS
    text = str(error) or type(error).__name__
    return FaultReport(
        domain=FaultDomain(domain),
        error=type(error).__name__,
        message=text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…",
        retryable=error.retryable if isinstance(error, Fault) else False,
    )
