"""Multi-turn agent environments that leave a token-exact record of every step."""

__version__ = "0.1.0"
