"""Health: problems that keep the service from working, as workers observe them on chains and `/healthz` lists them."""
