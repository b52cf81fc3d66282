"""Profiles of hypothesis, and nothing hidden."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_LOADED = [HealthCheck.too_slow]  # machines that run tests do other work as well
settings.register_profile("default", max_examples=25, deadline=None, suppress_health_check=_LOADED)
settings.register_profile("broad", max_examples=200, deadline=None, suppress_health_check=_LOADED)
settings.register_profile("thorough", max_examples=1000, deadline=None, suppress_health_check=_LOADED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
