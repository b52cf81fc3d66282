"""Profiles of hypothesis, Ctrl-C, and nothing hidden."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

_LOADED = [HealthCheck.too_slow]  # machines that run tests do other work as well
# The same examples in every run: what fails, a change broke. `make test-all` looks further.
settings.register_profile("default", max_examples=25, derandomize=True, deadline=None, suppress_health_check=_LOADED)
settings.register_profile("broad", max_examples=200, deadline=None, suppress_health_check=_LOADED)
settings.register_profile("thorough", max_examples=1000, deadline=None, suppress_health_check=_LOADED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Have it work also where a shell started the tests in the background, which is handed down to all they start."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    if ignored:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
