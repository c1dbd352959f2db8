"""SQL helpers, locks, leases and bulk writes: what knows the database, and no model of this service."""
