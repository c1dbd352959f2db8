"""Django's backend for PostgreSQL, also behind a pooler such as PgBouncer."""
