"""Profiles of hypothesis, and nothing hidden."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("fast", max_examples=25, deadline=None)
settings.register_profile("default", max_examples=60, deadline=None)
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
