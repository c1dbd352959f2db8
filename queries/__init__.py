"""Batches, their queries and steps, the schema of requests, and the HTTP API."""
