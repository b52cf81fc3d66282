"""Floor 2: planners of compactions."""
