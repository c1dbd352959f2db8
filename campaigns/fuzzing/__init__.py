"""Machines that search for false facts the registry accepts: by operation, by transaction, by sequence."""
