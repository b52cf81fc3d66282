"""Floor 2: where commands run."""
