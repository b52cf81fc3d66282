"""Exceptions to fault reports: whose fault it was is decided by the class raised at the boundary, never by a name.

What goes on record is what the exception says, without the secrets it may quote: the user part of an address, and
whatever this process was given in an environment variable named as a key, a token, a secret or a password.
"""

from __future__ import annotations

import os
import re

from agentenv.errors import Fault
from agentenv.records.axes import FaultDomain
from agentenv.records.episode import FaultReport

_LONGEST = 2_000
_SECRET_NAME = re.compile(r"(^|_)(API_?KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
_SHORTEST_SECRET = 6
"""Shorter values are switches and the like; leaving them out would only garble the text."""
_USER_OF_ADDRESS = re.compile(r"(?<=://)[^\s/?#]*@")


def report_of(error: Exception) -> FaultReport:
    """Describe an exception for the record; what is no `Fault` is the harness's own."""
    domain = error.domain if isinstance(error, Fault) else FaultDomain.HARNESS
    text = without_secrets(str(error) or type(error).__name__)
    return FaultReport(
        domain=FaultDomain(domain),
        error=type(error).__name__,
        message=text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…",
        retryable=error.retryable if isinstance(error, Fault) else False,
    )


def attributed(error: BaseException, domain: type[Fault], place: str) -> Exception:
    """Give an exception that is the affair of whoever raised it, as one that can be recorded.

    Args:
        error: Of which `core.boundary.is_its_own` says yes.
        domain: Whose fault it is where it is no `Exception`: a cancellation that nobody asked for, a ``SystemExit``.
        place: What raised it, for the message.
    """
    if isinstance(error, Exception):
        return error
    said = f": {error}" if str(error) else ""
    return domain.permanent(f"{place} raised {type(error).__name__}, which nobody had asked for{said}")


def without_secrets(text: str) -> str:
    """Replace the secrets that a text quotes by stars.

    >>> without_secrets("no answer from https://me:hunter2@host/v1")
    'no answer from https://***@host/v1'
    """
    text = _USER_OF_ADDRESS.sub("***@", text)
    secrets = {value for name, value in os.environ.items() if _SECRET_NAME.search(name)}
    for secret in sorted(secrets, key=len, reverse=True):  # one may be part of another
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text
