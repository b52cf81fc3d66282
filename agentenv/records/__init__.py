"""Floor 0: pure data. No I/O, no clock; imports only ``agentenv.errors``."""
