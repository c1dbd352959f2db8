"""Measurements of the service and its contracts. Each has a target of its own."""
