"""Floor 2: what samples replies."""
