"""Measurements of the service and its contracts. Each has a make target."""
