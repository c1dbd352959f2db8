"""Registries: their calls and addresses, and their deployment on a destination."""
