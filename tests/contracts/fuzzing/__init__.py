"""Machines that look for a difference between the registry and what is true: single operations, transactions, sequences."""
