"""``python -m agentenv.local``: bring the small model into the cache and print where it lies."""

from __future__ import annotations

import sys

from agentenv.errors import AgentEnvError
from agentenv.local.models import SMOLLM2, smollm2_path
from agentenv.local.progress import progress_bar


def main() -> int:
    """Fetch; 0 if the model is there, 3 if it could not be had."""
    try:
        with progress_bar(f"Fetching {SMOLLM2.file_name}") as progress:
            path = smollm2_path(progress=progress)
    except AgentEnvError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
