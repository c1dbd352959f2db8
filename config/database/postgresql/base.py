"""Django's backend for PostgreSQL. It sets time limits, notices a pooler, and says why there is no connection.

Time limits are set after connecting, because no PgBouncer passes them on in the startup parameter `options`. Behind a
pooler they are not set, because it may give each transaction another connection of its own: they would get lost, and
hold for others. There the role must have them (`config.database.pooler`). Server-side cursors would get lost too.
"""

from typing import Any, Self

import psycopg
from django.db.backends.postgresql import base
from django.db.backends.postgresql.schema import DatabaseSchemaEditor
from psycopg_pool import ConnectionPool, PoolTimeout

from config.database.expansions import TIME_LIMITS


class _NewConnection(psycopg.Connection[Any]):
    """A connection of the pool. The pool makes it in a thread of its own, and keeps its errors to itself."""

    failure = ""
    """The server's words when a connection failed last. Empty if one was made since."""

    @classmethod
    def connect(cls, *arguments: Any, **parameters: Any) -> Self:
        try:
            return super().connect(*arguments, **parameters)
        except psycopg.Error as error:
            cls.note(error)
            raise

    @classmethod
    def note(cls, error: psycopg.Error) -> None:
        cls.failure = " ".join(str(error).split())


class SchemaEditor(DatabaseSchemaEditor):
    """A migration's transaction, with time limits of its own."""

    def __enter__(self) -> Self:
        super().__enter__()
        if self.atomic_migration:
            with self.connection.cursor() as cursor:
                cursor.execute(TIME_LIMITS)
        return self


class DatabaseWrapper(base.DatabaseWrapper):
    SchemaEditorClass = SchemaEditor

    @property
    def pool(self) -> "ConnectionPool[Any] | None":
        if options := self.settings_dict["OPTIONS"].get("pool"):
            options.setdefault("connection_class", _NewConnection)
        pool: ConnectionPool[Any] | None = super().pool
        return pool

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection. The error without one says what the server said, not only how long we waited."""
        try:
            connection = super().get_new_connection(conn_params)
            # A restart of the server breaks all connections of the pool. The pool's own check would pause between them.
            while self.pool and not _works(connection):
                self.pool.putconn(connection)
                connection = super().get_new_connection(conn_params)
        except PoolTimeout as error:
            said = _NewConnection.failure
            raise PoolTimeout(f"{error}: {said}" if said else str(error)) from None
        return connection

    def _configure_connection(self, connection: psycopg.Connection[Any]) -> bool:
        """Set the time limits of a new connection, or turn off server-side cursors if it leads to a pooler.

        A pooler can't name one server process at the start, because it may use several. It names its own number.
        """
        limits = self.settings_dict["TIME_LIMITS"]
        sql = f"SELECT {', '.join(['set_config(%s, %s, false)'] * len(limits))} WHERE pg_backend_pid() = %s"
        values = [part for limit in limits.items() for part in limit]
        try:
            super()._configure_connection(connection)  # type: ignore[misc]  # the stubs lack it
            is_direct = connection.execute(sql, [*values, connection.info.backend_pid]).fetchone()
        except psycopg.Error as error:
            _NewConnection.note(error)
            raise
        if not is_direct:
            self.settings_dict["DISABLE_SERVER_SIDE_CURSORS"] = True
        _NewConnection.failure = ""
        return True


def _works(connection: psycopg.Connection[Any]) -> bool:
    try:
        connection.execute("")
    except psycopg.Error:
        return False
    return True
