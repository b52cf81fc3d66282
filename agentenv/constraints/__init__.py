"""Floor 2: checkers of constraints. They decide a violation by what happened, not by what was said (law 9)."""
