"""Floor 4: many episodes at once."""
