"""Fakes, contract suites and strategies, shipped for tests; no product module imports it."""
