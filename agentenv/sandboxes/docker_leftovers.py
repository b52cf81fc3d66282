"""Containers of dead harnesses: told by their labels, and ended. A living sibling's are spared."""

from __future__ import annotations

import os

from agentenv.sandboxes.docker_engine import Engine
from agentenv.sandboxes.workspaces import Owner

OWNER_LABEL = "agentenv.owner"
"""The process that leased it, as `Owner` writes it."""
_USER_LABEL = "agentenv.user"


def owner_labels() -> dict[str, str]:
    """Give the labels of a container of this process."""
    here = Owner.this_process()
    return {OWNER_LABEL: here.prefix, "agentenv.boot": here.boot, _USER_LABEL: str(os.geteuid())}


def end_leftovers(engine: Engine) -> list[str]:
    """End the containers of our user whose owner is certain to be gone; give their names. Blocking.

    Of another user's processes it may not be seen whether they are alive.

    Raises:
        SandboxFault: The engine refuses, or is gone.
    """
    here = Owner.this_process()
    dead = [
        found.name
        for found in engine.containers(f"{_USER_LABEL}={os.geteuid()}")
        if (owner := Owner.of(f"{found.labels.get(OWNER_LABEL, '')}x")) is not None and owner.is_gone(here)
    ]
    for name in dead:
        engine.end(name)
    return dead
