"""Top floor: parse, call, print."""
