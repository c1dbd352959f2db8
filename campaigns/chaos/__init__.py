"""Chaos: what goes wrong at any moment costs time and nothing else, on each engine. `make chaos` runs it."""
