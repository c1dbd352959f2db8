"""Where Django looks for the engine's connection."""

from typing import Any

import psycopg
from django.db.backends.postgresql.base import DatabaseWrapper as DjangosWrapper
from psycopg_pool import ConnectionPool


class DatabaseWrapper(DjangosWrapper):
    """Takes no connection from the pool that the server has ended, as when it was restarted.

    The pool can look for itself (CONN_HEALTH_CHECKS). But it waits for a second and longer after each that it finds
    ended, and after a restart all of them are.
    """

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        while True:
            connection = super().get_new_connection(conn_params)
            try:
                ConnectionPool.check_connection(connection)
            except psycopg.OperationalError:
                # The pool puts another in its place.
                self.pool.putconn(connection)
            else:
                return connection
