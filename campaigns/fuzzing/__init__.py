"""Machines that look for what the registry takes and isn't true: by operation, by transaction, by sequence."""
