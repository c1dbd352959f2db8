"""Chaos: on each engine, failures at any moment may only cost time. `make chaos` runs it."""
