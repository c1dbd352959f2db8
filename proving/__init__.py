"""Proving: the four steps of a query, the facts registry, transactions and the worker."""
