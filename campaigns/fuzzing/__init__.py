"""Fuzzing: searches for false facts that the registry accepts, by operation, by transaction and by sequence."""
