"""SQL helpers, locks, due rows and bulk writes: what knows the database, and no model of this service."""
