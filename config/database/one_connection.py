"""A command's connection to the database, which it opens once."""

from django.core.management.base import CommandError
from django.db import Error as DatabaseError
from django.db import connection


def connect() -> None:
    """Open the connection without a pool, which would try again for 20 s. Raises `CommandError` with the reason."""
    if connection.connection is None:
        connection.settings_dict["OPTIONS"].pop("pool", None)
    try:
        connection.ensure_connection()
    except DatabaseError as error:
        raise CommandError(f"The database can't be opened: {' '.join(str(error).split())}") from None
