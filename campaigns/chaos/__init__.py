"""Chaos: failures at any moment cost time and nothing else, on each engine. `make chaos` runs it."""
