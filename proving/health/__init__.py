"""What keeps the service from working: what workers see of the chains, and what `/healthz` says of it."""
