"""Registers every installed suite with Gymnasium, as ``agentenv/SUITE-v0``. Importing this module is the registration.

Gymnasium 1.0 did away with entry points of its own, so one of two lines is needed::

    import agentenv.gym                                    # then gymnasium.make("agentenv/arithmetic-v0")
    gymnasium.make("agentenv.gym:agentenv/arithmetic-v0")  # imports it by itself

No suite is loaded before its environment is made.
"""

from __future__ import annotations

import gymnasium

from agentenv.registry import suite_names


def register_suites() -> None:
    """Register the suites that are installed; those already registered are left alone."""
    for name in suite_names():
        env_id = f"agentenv/{name}-v0"
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="agentenv.config.environments:make_agent_env",
                kwargs={"suite": name},
            )


register_suites()
