"""Floor 2: numbers over records."""
