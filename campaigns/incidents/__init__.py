"""Incidents: each is told by `/healthz` within 30 s, or absorbed, and nothing is lost. `make incidents` runs it."""
