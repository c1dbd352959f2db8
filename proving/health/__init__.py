"""Health: problems that keep the service from working. Workers observe them on chains, and `/healthz` lists them."""
