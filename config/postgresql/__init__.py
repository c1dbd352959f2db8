"""Django's engine for PostgreSQL, whose pool is of use again as soon as the server is."""
