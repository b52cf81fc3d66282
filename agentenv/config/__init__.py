"""Typed configuration to live objects: the only wiring."""
