"""Floor 2: checkers of rules, decided by effects."""
