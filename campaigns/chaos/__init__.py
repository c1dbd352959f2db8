"""Chaos: on each engine, an upgrade and a failure at any statement may only cost time. `make chaos` runs it."""
