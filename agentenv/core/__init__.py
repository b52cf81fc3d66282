"""Floor 1: contracts. One concept, one small file, no implementation."""
