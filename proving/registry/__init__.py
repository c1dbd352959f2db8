"""The facts registry of a connection: its contract, its deployments, and what is written to it."""
