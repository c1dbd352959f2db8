"""Proving: the pipeline of the four steps, the registry, transactions and the worker."""
