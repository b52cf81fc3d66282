"""Floor 2: the rules of an episode, without I/O and without a clock."""
