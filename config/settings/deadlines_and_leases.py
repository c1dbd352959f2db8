"""How long a batch and a worker may take."""

from config.environment import env_int

# How long a batch may take before it is rejected.
BATCH_DEADLINE_SECONDS = env_int("BATCH_DEADLINE_SECONDS", 24 * 3600, minimum=1)
# How long a worker may keep a row without renewing its lease. After that, another worker takes it up.
LEASE_SECONDS = env_int("LEASE_SECONDS", 30, minimum=1)
